"""What becomes of partitions when nodes die and come: one lifecycle, one table. Pure: a state in, a state out.

A partition is LIVE if it is up and everything upstream of it is live; live partitions take each new epoch. A STALLED one is up, but
something upstream is not live, or its state is on its way: it keeps state and cursor. A DOWN one lost its node. A CATCHING_UP one has
a node and state (its own, or that of its newest checkpoint) and takes past epochs until its cursor meets the head.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from types import MappingProxyType

from resurge.errors import ProtocolError
from resurge.model.names import NodeId, Partition
from resurge.model.work import Assignment
from resurge.protocols.cuts import Cut, Cuts
from resurge.protocols.statuses import Statuses


class Phase(Enum):
    """Where a partition is in its life."""

    LIVE = "live"
    STALLED = "stalled"
    DOWN = "down"
    CATCHING_UP = "catching up"


class Event(Enum):
    """What can happen to a partition."""

    NODE_LOST = "its node is lost"
    UPSTREAM_LOST = "something upstream is not live"
    SCHEDULED = "the planner chose it"
    CAUGHT_UP = "its cursor met the head"
    ROLLED_BACK = "everything goes back to the last checkpoint"
    GIVEN_UP = "too much input is kept for it: it goes on from a later epoch"
    PAUSED = "it waits until its state is on another node"
    MOVED = "it goes on elsewhere, from an older state"


TRANSITIONS: Mapping[tuple[Phase, Event], Phase] = {
    (Phase.LIVE, Event.NODE_LOST): Phase.DOWN,
    (Phase.LIVE, Event.UPSTREAM_LOST): Phase.STALLED,
    (Phase.LIVE, Event.PAUSED): Phase.STALLED,
    (Phase.LIVE, Event.MOVED): Phase.CATCHING_UP,
    (Phase.STALLED, Event.NODE_LOST): Phase.DOWN,
    (Phase.STALLED, Event.SCHEDULED): Phase.CATCHING_UP,
    (Phase.STALLED, Event.MOVED): Phase.CATCHING_UP,
    (Phase.DOWN, Event.SCHEDULED): Phase.CATCHING_UP,
    (Phase.CATCHING_UP, Event.NODE_LOST): Phase.DOWN,
    (Phase.CATCHING_UP, Event.UPSTREAM_LOST): Phase.STALLED,
    (Phase.CATCHING_UP, Event.CAUGHT_UP): Phase.LIVE,
    (Phase.LIVE, Event.ROLLED_BACK): Phase.DOWN,
    (Phase.STALLED, Event.ROLLED_BACK): Phase.DOWN,
    (Phase.CATCHING_UP, Event.ROLLED_BACK): Phase.DOWN,
    (Phase.DOWN, Event.ROLLED_BACK): Phase.DOWN,
    (Phase.STALLED, Event.GIVEN_UP): Phase.DOWN,
    (Phase.DOWN, Event.GIVEN_UP): Phase.DOWN,
}


@dataclass(frozen=True)
class PartitionStatus:
    """One partition: its phase, its node, the last epoch it has processed, and the last epoch whose output was published."""

    phase: Phase
    node: NodeId | None
    cursor: int
    published: int

    def after(self, event: Event, partition: Partition) -> "PartitionStatus":
        """The status after an event, by the table."""
        phase = TRANSITIONS.get((self.phase, event))
        if phase is None:
            accepted = ", ".join(sorted(known.name for given, known in TRANSITIONS if given is self.phase))
            raise ProtocolError(
                f"partition {partition} is {self.phase.name} and cannot handle {event.name}; it accepts {accepted}"
            )
        return replace(self, phase=phase)


@dataclass(frozen=True)
class QueryNeed:
    """A query partition: its priority and all partitions without which it has no output."""

    priority: float
    partitions: frozenset[Partition]


@dataclass(frozen=True)
class Graph:
    """Who feeds whom, upstream first; and what each query partition needs. Fixed for the life of a job."""

    upstream: Mapping[Partition, frozenset[Partition]]
    queries: Mapping[str, QueryNeed]
    has_source_queries: bool = False
    """Whether some query needs sources only: live epochs serve it whatever is down."""

    @cached_property
    def levels(self) -> Mapping[Partition, int]:
        """How many partitions are above each, at most: a level begins when the one above it has ended everywhere."""
        found: dict[Partition, int] = {}
        for partition, above in self.upstream.items():
            found[partition] = 1 + max((found[other] for other in above), default=-1)
        return found


@dataclass(frozen=True, eq=False)
class Roster:
    """Who is where, in which phase: the same value until a partition joins, leaves, moves or takes past epochs.

    Whatever follows from it is worked out once, and not in every epoch.
    """

    graph: Graph
    statuses: Mapping[Partition, PartitionStatus]

    @cached_property
    def counts(self) -> Mapping[Phase, int]:
        """How many partitions are in each phase."""
        # Compared and not hashed, because the hash of an enum's member is computed in Python.
        phases = [status.phase for status in self.statuses.values()]
        return {phase: phases.count(phase) for phase in Phase}

    @cached_property
    def assignment(self) -> Assignment:
        """The live partitions and their nodes, upstream first."""
        placed = ((partition, self.statuses[partition]) for partition in self.graph.upstream)
        return Assignment({partition: known.node for partition, known in placed if known.phase is Phase.LIVE and known.node})

    @property
    def live(self) -> frozenset[Partition]:
        """The partitions that take the next epoch."""
        return self.assignment.partitions

    @cached_property
    def live_queries(self) -> frozenset[str]:
        """The query partitions that produce output."""
        return frozenset(name for name, need in self.graph.queries.items() if need.partitions <= self.live)

    @cached_property
    def occupied(self) -> frozenset[NodeId]:
        """The nodes that have partitions."""
        return frozenset(known.node for known in self.statuses.values() if known.node is not None)

    @cached_property
    def published_ahead(self) -> int:
        """The newest epoch that a live partition had published when the roster was made."""
        return max((self.statuses[partition].published for partition in self.live), default=0)

    @cached_property
    def placed(self) -> tuple[tuple[str, NodeId | None], ...]:
        """The phase and node of each partition."""
        return tuple((known.phase.value, known.node) for known in self.statuses.values())

    def published(self, partitions: tuple[Partition, ...], head: int) -> int:
        """The newest epoch that all of these partitions have published."""
        key = id(partitions)
        if key not in self._published:
            known = [(self.statuses[partition].published, partition in self.live) for partition in partitions]
            ends = [min((at for at, is_live in known if is_live is wanted), default=None) for wanted in (True, False)]
            self._published[key] = partitions, ends[0], ends[1]
        _, live, others = self._published[key]
        return min(at for at in (None if live is None else max(live, head), others) if at is not None)

    @cached_property
    def _published(self) -> dict[int, tuple[tuple[Partition, ...], int | None, int | None]]:
        return {}


@dataclass(frozen=True)
class RecoveryState:
    """The state that recovery decisions are made from: partitions, nodes, costs, head and checkpoints."""

    graph: Graph
    statuses: Mapping[Partition, PartitionStatus]
    capacity: Mapping[NodeId, float]
    costs: Mapping[Partition, float] = field(default_factory=dict)
    head: int = 0
    cuts: Cuts = field(default_factory=Cuts)
    nodes_lost: int = 0
    is_buffering: bool = False
    revision: int = field(default=0, compare=False)
    """Counts changes of any partition's status, so that what was decided before can tell whether it still holds."""

    @property
    def checkpoint(self) -> int:
        """The epoch of the newest checkpoint."""
        return self.cuts.last

    def restore_point(self, partition: Partition) -> int:
        """The epoch from which a partition goes on if its state is lost now."""
        return self.cuts.newest.get(partition, 0)

    def of_phase(self, *phases: Phase) -> list[Partition]:
        """The partitions in these phases, upstream first."""
        if not self.has_phase(*phases):
            return []
        return [partition for partition in self.graph.upstream if self.statuses[partition].phase in phases]

    def has_phase(self, *phases: Phase) -> bool:
        """Whether some partition is in one of these phases."""
        return any(self.roster.counts[phase] for phase in phases)

    @cached_property
    def roster(self) -> Roster:
        """Who is where, in which phase."""
        return self.statuses.roster if isinstance(self.statuses, Statuses) else Roster(self.graph, self.statuses)

    @property
    def live(self) -> frozenset[Partition]:
        """The partitions that take the next epoch."""
        return self.roster.live

    @property
    def all_live(self) -> bool:
        """Whether every partition is live."""
        return len(self.live) == len(self.statuses)

    def free(self) -> dict[NodeId, float]:
        """Capacity that no running partition uses, per node; a stalled one does nothing, and takes up nothing until it resumes."""
        left = dict(self.capacity)
        for partition, status in self.statuses.items():
            if status.node in left and status.phase is not Phase.STALLED:
                left[status.node] -= self.costs.get(partition, 0.0)
        return {node: max(0.0, value) for node, value in left.items()}

    @property
    def live_queries(self) -> frozenset[str]:
        """The query partitions that produce output."""
        return self.roster.live_queries

    @cached_property
    def worth(self) -> tuple[float, float]:
        """The priorities of the query partitions that produce output, and of those that do or are on their way back."""
        up = frozenset(self.of_phase(Phase.LIVE, Phase.CATCHING_UP))
        live = sum(self.graph.queries[name].priority for name in self.live_queries)
        return live, sum(self.graph.queries[name].priority for name in self._queries_within(up))

    def _queries_within(self, partitions: frozenset[Partition]) -> Iterator[str]:
        return (name for name, need in self.graph.queries.items() if need.partitions <= partitions)


def begin(graph: Graph, capacity: Mapping[NodeId, float], placement: Mapping[Partition, NodeId], epoch: int) -> RecoveryState:
    """A job whose partitions all stand at one epoch, each on a node."""
    statuses = {partition: PartitionStatus(Phase.LIVE, placement[partition], epoch, epoch) for partition in graph.upstream}
    return RecoveryState(graph, statuses, dict(capacity), head=epoch, cuts=Cuts.whole(graph.upstream, epoch))


def nodes_lost(recovery: RecoveryState, lost: Iterable[NodeId], correlated_from: int) -> RecoveryState:
    """Partitions of lost nodes are down at their newest checkpoint; what they fed stalls; a correlated failure buffers."""
    gone = frozenset(lost) & frozenset(recovery.capacity)
    if not gone:
        return recovery
    statuses = dict(recovery.statuses)
    for partition, known in recovery.statuses.items():
        if known.node in gone:
            cursor = recovery.restore_point(partition)
            statuses[partition] = replace(known.after(Event.NODE_LOST, partition), node=None, cursor=cursor)
    count = recovery.nodes_lost + len(gone)
    capacity = {node: value for node, value in recovery.capacity.items() if node not in gone}
    changed = replace(
        recovery,
        statuses=statuses,
        revision=recovery.revision + 1,
        capacity=capacity,
        nodes_lost=count,
        is_buffering=recovery.is_buffering or count >= correlated_from,
    )
    return stalled(changed)


def stalled(recovery: RecoveryState) -> RecoveryState:
    """Let everything stall that lies below a partition which is not live (nor catching up with it)."""
    statuses = dict(recovery.statuses)
    for partition, upstream in recovery.graph.upstream.items():
        known = statuses[partition]
        above = [statuses[other].phase for other in upstream]
        blocked = {
            Phase.LIVE: any(phase is not Phase.LIVE for phase in above),
            Phase.CATCHING_UP: any(phase in (Phase.DOWN, Phase.STALLED) for phase in above),
        }
        if blocked.get(known.phase, False):
            statuses[partition] = known.after(Event.UPSTREAM_LOST, partition)
    return replace(recovery, statuses=statuses, revision=recovery.revision + 1)


def nodes_joined(recovery: RecoveryState, joined: Mapping[NodeId, float]) -> RecoveryState:
    """New capacity."""
    return replace(recovery, capacity={**recovery.capacity, **joined})


def nodes_left(recovery: RecoveryState, left: Iterable[NodeId]) -> RecoveryState:
    """Nodes without partitions are gone: nothing is lost with them."""
    gone = frozenset(left)
    return replace(recovery, capacity={node: value for node, value in recovery.capacity.items() if node not in gone})


def rolled_back(recovery: RecoveryState, partitions: Collection[Partition] | None = None) -> RecoveryState:
    """All partitions, or some, are down at their newest checkpoint though their nodes live: the source-replay strategy's answer."""
    statuses = dict(recovery.statuses)
    for partition in statuses if partitions is None else partitions:
        known, cursor = statuses[partition], recovery.restore_point(partition)
        statuses[partition] = replace(known.after(Event.ROLLED_BACK, partition), node=None, cursor=cursor)
    return stalled(replace(recovery, statuses=statuses))


def scheduled(
    recovery: RecoveryState,
    placement: Mapping[Partition, NodeId],
    queries: Iterable[str],
    held: Mapping[Partition, int] = MappingProxyType({}),
) -> RecoveryState:
    """Down partitions get their nodes; they, and the stalled ones of the same queries, begin to catch up.

    A stalled partition that is given another node, because its own is full, leaves its state and begins at its newest checkpoint.
    Where the new node has a copy of an epoch (`held`), that is where the partition begins.
    """
    wanted: set[Partition] = set(placement)
    for name in queries:
        wanted |= recovery.graph.queries[name].partitions
    statuses = dict(recovery.statuses)
    for partition in recovery.graph.upstream:
        known = statuses[partition]
        if partition not in wanted or known.phase in (Phase.LIVE, Phase.CATCHING_UP):
            continue
        above = (statuses[other].phase for other in recovery.graph.upstream[partition])
        if any(phase in (Phase.DOWN, Phase.STALLED) for phase in above):
            continue
        if known.phase is Phase.DOWN and partition not in placement:
            continue
        node = placement.get(partition, known.node)
        begins = held.get(partition, recovery.restore_point(partition))
        cursor = known.cursor if node == known.node else begins
        statuses[partition] = replace(known.after(Event.SCHEDULED, partition), node=node, cursor=cursor)
    return replace(recovery, statuses=statuses, revision=recovery.revision + 1) if statuses != recovery.statuses else recovery


def advanced(recovery: RecoveryState, cursors: Mapping[Partition, int]) -> RecoveryState:
    """Partitions caught up to these epochs, and their output was published; those that met the head, with all upstream, are live."""
    statuses = dict(recovery.statuses)
    for partition, cursor in cursors.items():
        known = statuses[partition]
        statuses[partition] = replace(known, cursor=max(known.cursor, cursor), published=max(known.published, cursor))
    return _joined(replace(recovery, statuses=statuses, revision=recovery.revision + 1))


def _joined(recovery: RecoveryState) -> RecoveryState:
    # Most of the time nobody is on the way: then the graph need not be gone through.
    if not recovery.has_phase(Phase.CATCHING_UP):
        return replace(recovery, revision=recovery.revision + 1)
    statuses = dict(recovery.statuses)
    for partition, upstream in recovery.graph.upstream.items():
        known = statuses[partition]
        is_there = known.phase is Phase.CATCHING_UP and known.cursor == recovery.head
        if is_there and all(statuses[other].phase is Phase.LIVE for other in upstream):
            statuses[partition] = known.after(Event.CAUGHT_UP, partition)
    return replace(recovery, statuses=statuses, revision=recovery.revision + 1)


def epoch_done(recovery: RecoveryState, epoch: int) -> RecoveryState:
    """The live partitions have taken one more epoch."""
    if epoch != recovery.head + 1:
        raise ProtocolError(f"epoch {epoch} cannot follow epoch {recovery.head}; expected epoch {recovery.head + 1}")
    statuses = Statuses(recovery.roster, epoch)
    return _joined(replace(recovery, statuses=statuses, revision=recovery.revision + 1, head=epoch))


def checkpointed(recovery: RecoveryState, epoch: int, partitions: Collection[Partition] | None = None) -> RecoveryState:
    """The states of an epoch are durable: those of all that are live, or of some, which may have gone on since.

    With everybody's, earlier failures are history, and buffering ends.
    """
    saved = recovery.live if partitions is None else frozenset(partitions)
    # Whoever is live is at the head.
    stray = sorted(map(str, saved - recovery.live if epoch <= recovery.head else saved))
    if stray or (recovery.statuses and not saved):
        came = f"{stray[0]} is not live there" if stray else "there is none"
        raise ProtocolError(f"a checkpoint of epoch {epoch} needs partitions that are live at it; {came}")
    changed = replace(recovery, cuts=recovery.cuts.with_cut(Cut(epoch, saved)))
    return replace(changed, nodes_lost=0, is_buffering=False) if len(saved) == len(recovery.statuses) else changed
