"""What becomes of partitions when nodes die and come: one lifecycle, one table. Pure: facts in, facts out.

A partition is LIVE if it is up and everything upstream of it is live; live partitions take each new epoch. A STALLED one is
up, but something upstream is not live: it keeps its state and cursor. A DOWN one lost its node. A CATCHING_UP one has a
node and state (its own, or that of its newest checkpoint) and takes past epochs until its cursor meets the head.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from resurge.errors import ProtocolError
from resurge.model.names import NodeId, Partition
from resurge.protocols.cuts import Cut, Cuts


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


TRANSITIONS: Mapping[tuple[Phase, Event], Phase] = {
    (Phase.LIVE, Event.NODE_LOST): Phase.DOWN,
    (Phase.LIVE, Event.UPSTREAM_LOST): Phase.STALLED,
    (Phase.STALLED, Event.NODE_LOST): Phase.DOWN,
    (Phase.STALLED, Event.SCHEDULED): Phase.CATCHING_UP,
    (Phase.DOWN, Event.SCHEDULED): Phase.CATCHING_UP,
    (Phase.CATCHING_UP, Event.NODE_LOST): Phase.DOWN,
    (Phase.CATCHING_UP, Event.UPSTREAM_LOST): Phase.STALLED,
    (Phase.CATCHING_UP, Event.CAUGHT_UP): Phase.LIVE,
    (Phase.LIVE, Event.ROLLED_BACK): Phase.DOWN,
    (Phase.STALLED, Event.ROLLED_BACK): Phase.DOWN,
    (Phase.CATCHING_UP, Event.ROLLED_BACK): Phase.DOWN,
    (Phase.DOWN, Event.ROLLED_BACK): Phase.DOWN,
}


@dataclass(frozen=True)
class Standing:
    """One partition: its phase, its node, the last epoch it has processed, and the last epoch whose output was shown."""

    phase: Phase
    node: NodeId | None
    cursor: int
    shown: int

    def after(self, event: Event, partition: Partition) -> "Standing":
        """The standing after an event, by the table."""
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


@dataclass(frozen=True)
class Facts:
    """Everything a recovery decision is made from."""

    graph: Graph
    standing: Mapping[Partition, Standing]
    capacity: Mapping[NodeId, float]
    costs: Mapping[Partition, float] = field(default_factory=dict)
    head: int = 0
    cuts: Cuts = field(default_factory=Cuts)
    nodes_lost: int = 0
    is_buffering: bool = False
    revision: int = field(default=0, compare=False)
    """Counts changes of any standing, so that what was decided before can tell whether it still holds."""

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
        return [partition for partition in self.graph.upstream if self.standing[partition].phase in phases]

    def has_phase(self, *phases: Phase) -> bool:
        """Whether some partition is in one of these phases."""
        return any(self._counts.get(phase, 0) for phase in phases)

    @cached_property
    def _counts(self) -> Mapping[Phase, int]:
        # Compared and not hashed, because the hash of an enum's member is computed in Python.
        phases = [standing.phase for standing in self.standing.values()]
        return {phase: phases.count(phase) for phase in Phase}

    @cached_property
    def live(self) -> frozenset[Partition]:
        """The partitions that take the next epoch."""
        return frozenset(self.of_phase(Phase.LIVE))

    @property
    def is_whole(self) -> bool:
        """Whether every partition is live."""
        return self._counts.get(Phase.LIVE, 0) == len(self.standing)

    def free(self) -> dict[NodeId, float]:
        """Capacity that no running partition uses, per node; a stalled one does nothing, and takes up nothing until it resumes."""
        left = dict(self.capacity)
        for partition, standing in self.standing.items():
            if standing.node in left and standing.phase is not Phase.STALLED:
                left[standing.node] -= self.costs.get(partition, 0.0)
        return {node: max(0.0, value) for node, value in left.items()}

    @cached_property
    def live_queries(self) -> frozenset[str]:
        """The query partitions that produce output."""
        return frozenset(self._queries_within(self.live))

    @cached_property
    def worth(self) -> tuple[float, float]:
        """The priorities of the query partitions that produce output, and of those that do or are on their way back."""
        up = frozenset(self.of_phase(Phase.LIVE, Phase.CATCHING_UP))
        live = sum(self.graph.queries[name].priority for name in self.live_queries)
        return live, sum(self.graph.queries[name].priority for name in self._queries_within(up))

    def _queries_within(self, partitions: frozenset[Partition]) -> Iterator[str]:
        return (name for name, need in self.graph.queries.items() if need.partitions <= partitions)


def begin(graph: Graph, capacity: Mapping[NodeId, float], placement: Mapping[Partition, NodeId], epoch: int) -> Facts:
    """A job whose partitions all stand at one epoch, each on a node."""
    standing = {partition: Standing(Phase.LIVE, placement[partition], epoch, epoch) for partition in graph.upstream}
    return Facts(graph, standing, dict(capacity), head=epoch, cuts=Cuts.whole(graph.upstream, epoch))


def nodes_lost(facts: Facts, lost: Iterable[NodeId], correlated_from: int) -> Facts:
    """Partitions of lost nodes are down at their newest checkpoint; what they fed stalls; a correlated failure buffers."""
    gone = frozenset(lost) & frozenset(facts.capacity)
    if not gone:
        return facts
    standing = dict(facts.standing)
    for partition, known in facts.standing.items():
        if known.node in gone:
            cursor = facts.restore_point(partition)
            standing[partition] = replace(known.after(Event.NODE_LOST, partition), node=None, cursor=cursor)
    count = facts.nodes_lost + len(gone)
    capacity = {node: value for node, value in facts.capacity.items() if node not in gone}
    changed = replace(
        facts,
        standing=standing,
        revision=facts.revision + 1,
        capacity=capacity,
        nodes_lost=count,
        is_buffering=facts.is_buffering or count >= correlated_from,
    )
    return _stalled(changed)


def _stalled(facts: Facts) -> Facts:
    """Let everything stall that lies below a partition which is not live (nor catching up with it)."""
    standing = dict(facts.standing)
    for partition, upstream in facts.graph.upstream.items():
        known = standing[partition]
        above = [standing[other].phase for other in upstream]
        blocked = {
            Phase.LIVE: any(phase is not Phase.LIVE for phase in above),
            Phase.CATCHING_UP: any(phase in (Phase.DOWN, Phase.STALLED) for phase in above),
        }
        if blocked.get(known.phase, False):
            standing[partition] = known.after(Event.UPSTREAM_LOST, partition)
    return replace(facts, standing=standing, revision=facts.revision + 1)


def nodes_joined(facts: Facts, joined: Mapping[NodeId, float]) -> Facts:
    """New capacity."""
    return replace(facts, capacity={**facts.capacity, **joined})


def nodes_left(facts: Facts, left: Iterable[NodeId]) -> Facts:
    """Nodes without partitions are gone: nothing is lost with them."""
    gone = frozenset(left)
    return replace(facts, capacity={node: value for node, value in facts.capacity.items() if node not in gone})


def switched(facts: Facts, placement: Mapping[Partition, NodeId]) -> Facts:
    """Live partitions go on elsewhere, with the same cursor."""
    standing = dict(facts.standing)
    for partition, node in placement.items():
        known = standing[partition]
        if known.phase is not Phase.LIVE:
            raise ProtocolError(f"partition {partition} is {known.phase.name} and cannot move; expected it to be LIVE")
        standing[partition] = replace(known, node=node)
    return replace(facts, standing=standing, revision=facts.revision + 1)


def rolled_back(facts: Facts) -> Facts:
    """Everything is down at its newest checkpoint: the source-replay strategy's answer to each failure."""
    standing = {
        partition: replace(known.after(Event.ROLLED_BACK, partition), node=None, cursor=facts.restore_point(partition))
        for partition, known in facts.standing.items()
    }
    return replace(facts, standing=standing, revision=facts.revision + 1)


def scheduled(facts: Facts, placement: Mapping[Partition, NodeId], queries: Iterable[str]) -> Facts:
    """Down partitions get their nodes; they, and the stalled ones of the same queries, begin to catch up.

    A stalled partition that is given another node, because its own is full, leaves its state and begins at its newest checkpoint.
    """
    wanted: set[Partition] = set(placement)
    for name in queries:
        wanted |= facts.graph.queries[name].partitions
    standing = dict(facts.standing)
    for partition in facts.graph.upstream:
        known = standing[partition]
        if partition not in wanted or known.phase in (Phase.LIVE, Phase.CATCHING_UP):
            continue
        above = (standing[other].phase for other in facts.graph.upstream[partition])
        if any(phase in (Phase.DOWN, Phase.STALLED) for phase in above):
            continue
        if known.phase is Phase.DOWN and partition not in placement:
            continue
        node = placement.get(partition, known.node)
        cursor = known.cursor if node == known.node else facts.restore_point(partition)
        standing[partition] = replace(known.after(Event.SCHEDULED, partition), node=node, cursor=cursor)
    return replace(facts, standing=standing, revision=facts.revision + 1) if standing != facts.standing else facts


def moved(before: Facts, after: Facts) -> list[Partition]:
    """Partitions that had a node and have another one now."""
    return [
        partition
        for partition, known in before.standing.items()
        if known.node is not None and after.standing[partition].node not in (None, known.node)
    ]


def advanced(facts: Facts, cursors: Mapping[Partition, int]) -> Facts:
    """Partitions caught up to these epochs, and their output was shown; those that met the head, with all upstream, are live."""
    standing = dict(facts.standing)
    for partition, cursor in cursors.items():
        known = standing[partition]
        standing[partition] = replace(known, cursor=max(known.cursor, cursor), shown=max(known.shown, cursor))
    return _joined(replace(facts, standing=standing, revision=facts.revision + 1))


def _joined(facts: Facts) -> Facts:
    # Most of the time nobody is on the way: then the graph need not be gone through.
    if not any(known.phase is Phase.CATCHING_UP for known in facts.standing.values()):
        return replace(facts, revision=facts.revision + 1)
    standing = dict(facts.standing)
    for partition, upstream in facts.graph.upstream.items():
        known = standing[partition]
        is_there = known.phase is Phase.CATCHING_UP and known.cursor == facts.head
        if is_there and all(standing[other].phase is Phase.LIVE for other in upstream):
            standing[partition] = known.after(Event.CAUGHT_UP, partition)
    return replace(facts, standing=standing, revision=facts.revision + 1)


def epoch_done(facts: Facts, epoch: int) -> Facts:
    """The live partitions have taken one more epoch."""
    if epoch != facts.head + 1:
        raise ProtocolError(f"epoch {epoch} cannot follow epoch {facts.head}; expected epoch {facts.head + 1}")
    standing: dict[Partition, Standing] = {}
    # Partitions of a node mostly stand alike: one value serves them all.
    alike: dict[tuple[NodeId | None, int], Standing] = {}
    for partition, known in facts.standing.items():
        if known.phase is Phase.LIVE:
            after = alike.get((known.node, known.shown))
            if after is None:
                after = alike[known.node, known.shown] = replace(known, cursor=epoch, shown=max(epoch, known.shown))
            standing[partition] = after
        else:
            standing[partition] = known
    return _joined(replace(facts, standing=standing, revision=facts.revision + 1, head=epoch))


def checkpointed(facts: Facts, epoch: int, partitions: Collection[Partition] | None = None) -> Facts:
    """The states of an epoch are durable: those of all that are live, or of some. With everybody's, earlier failures are
    history, and buffering ends.
    """
    saved = facts.live if partitions is None else frozenset(partitions)
    stray = sorted(
        str(partition) for partition in saved if facts.standing[partition].cursor != epoch or partition not in facts.live
    )
    if stray or (facts.standing and not saved):
        came = f"{stray[0]} is not live there" if stray else "there is none"
        raise ProtocolError(f"a checkpoint of epoch {epoch} needs partitions that are live at it; {came}")
    changed = replace(facts, cuts=facts.cuts.with_cut(Cut(epoch, saved)))
    return replace(changed, nodes_lost=0, is_buffering=False) if len(saved) == len(facts.standing) else changed
