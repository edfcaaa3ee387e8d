"""The 15-query topology as the simulator runs it: which partition feeds which, and what each costs."""

from collections.abc import Mapping
from dataclasses import replace

from resurge.experiments.hashtag_topology import MAINTAINED, PRIORITIES
from resurge.model.names import KeyGroup, Partition
from resurge.simulator.workload import Workload, workload_of

# Relative, from the processor time of the levels in the study on a real cluster: reading, windows, and what maintains one or two.
READING_COST = 8.0
HASHTAG_COSTS: Mapping[str, float] = {
    "O1": 6.5, "O2": 7, "O3": 8, "O4": 8.5, "O5": 6, "O6": 6.5, "O7": 7, "O8": 7.5,
    "O9": 12.5, "O10": 13, "O11": 13.5, "O12": 13.5, "O13": 14, "O14": 14.5, "O15": 6,
}  # fmt: skip


def hashtag_workload(partitions: int = 15) -> Workload:
    """The 15-query topology of INCREMENTAL: source -> parser -> four sliding windows -> eleven that maintain them.

    Source and parser keep no state, so they are no partitions. All operators are keyed by the tag.

    >>> job = hashtag_workload(30)
    >>> len(job.graph.upstream), len(job.graph.queries), job.key_groups
    (30, 30, 2)
    """
    groups = max(1, partitions // len(PRIORITIES))
    upstream: dict[Partition, frozenset[Partition]] = {}
    costs: dict[Partition, float] = {}
    for operator in PRIORITIES:
        inputs = MAINTAINED.get(operator, ())
        for group in range(groups):
            partition = Partition(operator, KeyGroup(group))
            upstream[partition] = frozenset(Partition(name, KeyGroup(group)) for name in inputs)
            costs[partition] = HASHTAG_COSTS[operator] / groups
    outputs = {str(partition): partition for partition in upstream}
    made = workload_of("hashtags", upstream, costs, outputs, PRIORITIES, groups)
    return replace(made, reading_cost=READING_COST)
