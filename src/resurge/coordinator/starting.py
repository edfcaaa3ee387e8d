"""The state that a driver begins with: each partition is down at its newest checkpoint. Every start is a recovery."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from resurge.coordinator import draining
from resurge.coordinator.commands import Command, Emit
from resurge.coordinator.inputs import Member
from resurge.coordinator.measuring import priced
from resurge.coordinator.scheduling import Strategy, everything_down
from resurge.coordinator.state import Description, JobState, Pending, Settings, Turn
from resurge.model.gaps import Gap
from resurge.model.names import NodeId, Partition
from resurge.protocols.cuts import Cuts
from resurge.protocols.recovery import Graph
from resurge.telemetry.events import Warned


@dataclass(frozen=True)
class Found:
    """What a driver found in the journal and in the checkpoint.

    `checkpoint` is the newest one, or those that are in use; `published` is the last epoch that each partition's readers have seen for certain; `sources_published` that of the queries
    that read sources alone; `arrivals_s` has the logged epochs since the checkpoint, `pending` the one that was not committed;
    `rows_read` what the committed ones read, `gaps` what partitions have skipped, `drained` the failure domains that a user drained.
    """

    checkpoint: int | Cuts = 0
    head: int = 0
    published: Mapping[Partition, int] = field(default_factory=dict)
    sources_published: int = 0
    arrivals_s: Mapping[int, float] = field(default_factory=dict)
    pending: Pending | None = None
    costs: Mapping[Partition, float] = field(default_factory=dict)
    rows_read: Mapping[int, int] = field(default_factory=dict)
    gaps: Mapping[Partition, Gap] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()


def first_state(
    settings: Settings,
    description: Description,
    strategy: Strategy,
    graph: Graph,
    members: Mapping[NodeId, Member],
    found: Found,
) -> JobState:
    """A driver that has just started, with the nodes that are there."""
    capacity = {node: member.capacity for node, member in members.items()}
    recovery = everything_down(graph, capacity, found.checkpoint, found.head, found.published)
    wanted = max(strategy.nodes_wanted, len(capacity))
    return priced(
        JobState(
            settings,
            description,
            strategy.with_nodes_wanted(wanted),
            recovery,
            members=dict(members),
            draining=draining.again(members, found.drained),
            drained=found.drained,
            costs=dict(found.costs),
            pending=found.pending,
            arrivals_s=dict(found.arrivals_s),
            sources_published=found.sources_published,
            rows_read=dict(found.rows_read),
            gaps=dict(found.gaps),
        )
    )


def went_back(before: JobState, fresh: JobState, now_s: float) -> tuple[JobState, tuple[Command, ...]]:
    """A driver that begins again from an older checkpoint: what the user asked for and what is logged stands, attempts are counted on."""
    lane = replace(fresh.lane, turn=Turn.DUE, began_s=now_s)
    state = replace(
        fresh,
        pending=before.pending,
        arrivals_s={**before.arrivals_s, **fresh.arrivals_s},
        goal=before.goal,
        lane=lane,
        rhythm=before.rhythm,
        emitted=before.emitted,
        next_number=before.next_number,
        next_attempt=before.next_attempt,
        draining=before.draining,
        drained=before.drained,
        scaling=before.scaling,
    )
    state = priced(state)
    state = state.sending(*(Emit(Warned(now_s, warning)) for warning in fresh.description.warnings))
    state = state.emitting(*state.emitted.changed(now_s, before.recovery, state.recovery))
    return replace(state, outbox=()), state.outbox
