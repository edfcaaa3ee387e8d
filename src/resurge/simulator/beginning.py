"""What a simulated driver finds when it begins, and what it says of its job."""

from resurge.coordinator.job_events import described_graph
from resurge.coordinator.starting import Found
from resurge.coordinator.state import Description, Pending
from resurge.model.names import Partition
from resurge.simulator.journal import Journal
from resurge.simulator.workload import Workload, query_name
from resurge.simulator.world import World


def found_in(journal: Journal, world: World, now_s: float) -> Found:
    """Where the driver before has come to."""
    workload, rows_per_s = world.workload, world.timing.rows_per_s
    arrivals_s = {epoch: planned.arrival_s for epoch, planned in journal.planned.items()}
    pending = None
    if journal.pending is not None:
        pending = Pending(journal.pending, journal.planned[journal.pending].arrival_s, since_s=now_s)
    return Found(
        journal.cuts,
        journal.head,
        journal.published(workload.graph.upstream),
        journal.head,
        arrivals_s,
        pending,
        workload.costs,
        {epoch: round(planned.span_s * rows_per_s) for epoch, planned in journal.planned.items()},
        journal.gaps,
    )


def description(workload: Workload, generation: int, now_s: float) -> Description:
    """What telemetry says of the job."""
    outputs: dict[str, list[Partition]] = {query: [] for query in workload.priorities}
    for query, partition in workload.outputs.items():
        outputs[query_name(query, workload.priorities)].append(partition)
    topology = described_graph(now_s, workload.graph, {query: mine[0].operator for query, mine in outputs.items()})
    shown = {query: tuple(mine) for query, mine in outputs.items()}
    return Description(workload.name, "simulator", generation, workload.priorities, workload.key_groups, shown, topology)
