"""What runs in a simulated world: partition graphs with costs, given or drawn at random."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from resurge.model.names import KeyGroup, Partition, query_of
from resurge.protocols.recovery import Graph, QueryNeed

Upstream = Mapping[Partition, frozenset[Partition]]

STATE_BYTES_PER_COST = 20_000_000.0
UNQUERIED_PRIORITY = 0.001


@dataclass(frozen=True)
class Workload:
    """A job as the simulator runs it: the graph, what each partition costs, and who shows each query's output.

    A cost is CPU seconds per second of input; reading is shared by all nodes. `outputs` names the partition whose output a
    query partition shows. A level begins when the one above it has ended, as stages of a Spark job do.
    """

    name: str
    graph: Graph
    costs: Mapping[Partition, float]
    outputs: Mapping[str, Partition]
    priorities: Mapping[str, int]
    key_groups: int
    reading_cost: float = 0.0
    queries_shown_by: Mapping[Partition, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shown_by: dict[Partition, tuple[str, ...]] = {}
        for query, partition in self.outputs.items():
            shown_by[partition] = (*shown_by.get(partition, ()), query)
        object.__setattr__(self, "queries_shown_by", shown_by)

    @property
    def total_cost(self) -> float:
        """CPU seconds per second that the whole job takes."""
        return sum(self.costs.values())

    def state_bytes(self, partition: Partition) -> float:
        """How much a node must read to restore a partition: partitions that work more keep more."""
        return self.costs[partition] * STATE_BYTES_PER_COST


def scaled(workload: Workload, total_cost: float) -> Workload:
    """The same job, made to cost this much in all."""
    factor = total_cost / workload.total_cost
    costs = {partition: cost * factor for partition, cost in workload.costs.items()}
    return replace(workload, costs=costs, reading_cost=workload.reading_cost * factor)


def random_workload(rng: random.Random, most_operators: int = 7, most_groups: int = 4) -> Workload:
    """A random topology: levels, key groups, exchanges that keep the key or not, shared operators, queries of any priority."""
    groups = rng.randint(1, most_groups)
    operators = [f"op{number}" for number in range(rng.randint(1, most_operators))]
    upstream: dict[Partition, frozenset[Partition]] = {}
    inputs: dict[str, list[tuple[str, bool]]] = {}
    for number, operator in enumerate(operators):
        fan_in = min(number, rng.choice((0, 1, 1, 1, 2, 2, 3)))
        inputs[operator] = [(above, rng.random() < 0.6) for above in sorted(rng.sample(operators[:number], fan_in))]
        for group in range(groups):
            upstream[Partition(operator, KeyGroup(group))] = frozenset(_feeding(inputs[operator], group, groups))
    asked = sorted({operators[-1], *rng.sample(operators, rng.randint(1, len(operators)))})
    priorities = {f"q-{operator}": rng.randint(1, 10) for operator in asked}
    outputs = {f"q-{p.operator}/{p.key_group}": p for p in upstream if p.operator in asked}
    costs = {partition: round(rng.uniform(0.02, 0.3), 3) for partition in upstream}
    return workload_of("random", upstream, costs, outputs, priorities, groups)


def _feeding(inputs: Iterable[tuple[str, bool]], group: int, groups: int) -> Iterable[Partition]:
    for above, keeps_key in inputs:
        for other in [group] if keeps_key else range(groups):
            yield Partition(above, KeyGroup(other))


def workload_of(
    name: str,
    upstream: Upstream,
    costs: Mapping[Partition, float],
    outputs: Mapping[str, Partition],
    priorities: Mapping[str, int],
    groups: int,
) -> Workload:
    """Every query partition with all it needs; a partition that no query needs comes back last."""
    closures = _closures(upstream)
    queries = {
        query: QueryNeed(priorities[query_name(query, priorities)], closures[partition]) for query, partition in outputs.items()
    }
    needed = frozenset[Partition]().union(*(need.partitions for need in queries.values()))
    for partition in upstream:
        if partition not in needed:
            queries[f"{partition} (no query)"] = QueryNeed(UNQUERIED_PRIORITY, closures[partition])
    return Workload(name, Graph(upstream, queries), costs, outputs, priorities, groups)


def query_name(query_partition: str, priorities: Mapping[str, int]) -> str:
    """The query that a query partition belongs to."""
    name = query_of(query_partition)
    return name if name in priorities else query_partition


def _closures(upstream: Upstream) -> dict[Partition, frozenset[Partition]]:
    found: dict[Partition, frozenset[Partition]] = {}
    for partition, above in upstream.items():
        found[partition] = frozenset((partition,)).union(*(found[other] for other in above))
    return found
