"""Strategies: when failed partitions come back, which, and on which nodes. Pure; joins the protocol to the planner.

`incremental` takes what fits into the capacity that is free now, the most valuable queries first; what fits only into all nodes
together comes last. `blocking` waits for all replacement nodes. `eager` puts everything on whoever is left, whatever their load.
`source-replay` does the same after rolling everything back at each failure.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from resurge.errors import JobError
from resurge.model.names import NodeId, Partition
from resurge.planning.recovery_schedule import Query, RecoveryPlan, RecoveryProblem, plan_by
from resurge.protocols import recovery as transitions
from resurge.protocols.cuts import Cuts
from resurge.protocols.recovery import Graph, Phase, QueryNeed, RecoveryState

STRATEGIES = ("incremental", "blocking", "eager", "source-replay")
LARGE_PROBLEM = 400
FILLED, LEAST_EXTRA = 1.2, 0.2
"""On a large cluster the levels together may fill this much of a node, and so much more than they would if all nodes were there.

What fits nowhere may fill a node as far: with the usual headroom it still works for less than its whole time.
"""
MOST_PASSES = 3
TOLERANCE = 1e-9
LEAST_COST = 1e-6


@dataclass(frozen=True)
class Strategy:
    """How a job answers failures."""

    name: str = "incremental"
    algorithm: str = "anytime"
    deadline_ms: float = 100.0
    correlated_from: int = 2
    nodes_wanted: int = 1
    overfills_at_last: bool = False

    def __post_init__(self) -> None:
        if self.name not in STRATEGIES:
            raise JobError(f"the recovery strategy is {self.name!r}; expected one of {', '.join(STRATEGIES)}")

    def with_nodes_wanted(self, nodes: int) -> "Strategy":
        """The same for a cluster that has had so many nodes."""
        return self if nodes == self.nodes_wanted else replace(self, nodes_wanted=nodes)

    @property
    def heeds_capacity(self) -> bool:
        """Whether nodes are not filled above their capacity as long as that leaves nothing out that fits in sum."""
        return self.name == "incremental"


def after_loss(recovery: RecoveryState, lost: Iterable[NodeId], strategy: Strategy) -> RecoveryState:
    """What stands after nodes were lost."""
    changed = transitions.nodes_lost(recovery, lost, strategy.correlated_from)
    if changed is recovery or strategy.name != "source-replay":
        return changed
    return transitions.rolled_back(changed)


@dataclass(frozen=True)
class Answer:
    """Which partitions get which nodes, and which queries come back with them."""

    placement: Mapping[Partition, NodeId]
    queries: Collection[str] = ()


def schedule(recovery: RecoveryState, strategy: Strategy) -> RecoveryState:
    """Let the queries recover that can do so now; the same state if none can."""
    answer = answered(recovery, strategy)
    return transitions.scheduled(recovery, answer.placement, answer.queries)


def answered(recovery: RecoveryState, strategy: Strategy, copies: Mapping[Partition, NodeId] = MappingProxyType({})) -> Answer:
    """What can come back now; where there is room, on the nodes that have copies."""
    waiting = recovery.of_phase(Phase.DOWN, Phase.STALLED)
    if not waiting or not recovery.capacity:
        return Answer({})
    if strategy.name == "blocking" and len(recovery.capacity) < strategy.nodes_wanted:
        # What stalls without any partition of its own being down waits for nobody.
        return Answer({}) if recovery.of_phase(Phase.DOWN) else _everything(recovery, copies)
    if not strategy.heeds_capacity:
        return _everything(recovery, copies)
    if strategy.overfills_at_last and len(recovery.capacity) >= strategy.nodes_wanted:
        # Every node is there again and no other is expected: what was measured to be too much ran on these nodes before.
        # Nothing is left out, so nothing is chosen; the largest find a node first.
        placement = spread(recovery, waiting, _left(recovery, frozenset(waiting)), copies=copies, filling=OVERFILLED)
        return Answer(placement, tuple(recovery.graph.queries))
    answer = _what_fits(recovery, strategy, copies)
    if answer.placement or not strategy.overfills_at_last or recovery.has_phase(Phase.CATCHING_UP):
        return answer
    return _what_fits_in_sum(recovery, strategy, copies)


def moved(before: RecoveryState, after: RecoveryState) -> list[Partition]:
    """Partitions that had a node and have another one now."""
    return [
        partition
        for partition, known in before.statuses.items()
        if known.node is not None and after.statuses[partition].node not in (None, known.node)
    ]


def is_same_question(now: RecoveryState, before: RecoveryState | None) -> bool:
    """Whether nothing has changed that a schedule depends on."""
    if before is None or now.revision != before.revision:
        return False
    return now.capacity == before.capacity and now.costs == before.costs


def _everything(recovery: RecoveryState, copies: Mapping[Partition, NodeId]) -> Answer:
    """All failed partitions, also where there is no room for them."""
    placement = spread(recovery, recovery.of_phase(Phase.DOWN), _left(recovery), copies=copies, filling=OVERFILLED)
    return Answer(placement, tuple(recovery.graph.queries))


def _left(recovery: RecoveryState, apart_from: Collection[Partition] = ()) -> dict[NodeId, float]:
    # A node that may spend nothing drains: it takes nothing.
    left = {node: value for node, value in recovery.capacity.items() if value > 0}
    for partition, status in recovery.statuses.items():
        if status.node in left and partition not in apart_from:
            left[status.node] -= recovery.costs.get(partition, 0.0)
    return left


def _what_fits(recovery: RecoveryState, strategy: Strategy, copies: Mapping[Partition, NodeId]) -> Answer:
    """The planner's choice among the failed query partitions, within what each node has free."""
    if len(recovery.graph.queries) > LARGE_PROBLEM:
        answer = _level_by_level(recovery, strategy, copies)
        if answer.placement or len(recovery.capacity) < strategy.nodes_wanted:
            return answer
        # Nobody is waited for: what only fits beside others of its level comes back all the same.
    plan, placement = _planned(recovery, strategy, _failed(recovery), {}, recovery.free())
    better = _in_place(recovery, placement, copies)
    return Answer(better if len(better) == len(placement) else placement, tuple(plan.queries))


def _what_fits_in_sum(recovery: RecoveryState, strategy: Strategy, copies: Mapping[Partition, NodeId]) -> Answer:
    """What no node has room for alone, if the nodes together have room for all that waits; none is filled far."""
    lost = frozenset(recovery.of_phase(Phase.DOWN, Phase.STALLED))
    if not is_room_in_sum(recovery, lost):
        # Some must wait for a node anyway.
        return Answer({})
    left = _left(recovery, lost)
    free = {node: value + (FILLED - 1) * recovery.capacity[node] for node, value in left.items()}
    plan, placement = _planned(recovery, strategy, _failed(recovery), {}, free)
    better = spread(recovery, placement, left, copies=copies, filling=OVERFILLED)
    for partition, node in better.items():
        free[node] -= recovery.costs.get(partition, 0.0)
    is_bounded = all(free[node] >= -TOLERANCE for node in better.values())
    return Answer(better if is_bounded else placement, tuple(plan.queries))


def is_room_in_sum(recovery: RecoveryState, lost: Collection[Partition]) -> bool:
    """Whether all nodes together have room for partitions that do not run, whatever each has alone."""
    left = _left(recovery, lost)
    needed = sum(recovery.costs.get(partition, 0.0) for partition in lost)
    return needed <= sum(left.values()) + TOLERANCE


def _failed(recovery: RecoveryState) -> dict[str, QueryNeed]:
    up = frozenset(recovery.of_phase(Phase.LIVE, Phase.CATCHING_UP))
    return {name: need for name, need in recovery.graph.queries.items() if not need.partitions <= up}


def _planned(
    recovery: RecoveryState,
    strategy: Strategy,
    failed: Mapping[str, QueryNeed],
    placed: Mapping[Partition, NodeId],
    left: Mapping[NodeId, float],
) -> tuple[RecoveryPlan, dict[Partition, NodeId]]:
    """What the planner chooses of some queries beside what is placed already, within what nodes have left, and where."""
    names = {str(p): p for p in recovery.of_phase(Phase.DOWN, Phase.STALLED) if p not in placed}
    free = {str(node): max(0.0, value) for node, value in left.items()}
    costs = {name: float(recovery.costs.get(partition, 0.0)) for name, partition in names.items()}
    wanted = {
        name: Query(need.priority, sorted(str(partition) for partition in need.partitions if str(partition) in names))
        for name, need in failed.items()
    }
    is_large = len(recovery.graph.queries) > LARGE_PROBLEM and strategy.algorithm == "anytime"
    problem = RecoveryProblem(sum(free.values()), costs, wanted, free)
    plan = plan_by("greedy" if is_large else strategy.algorithm, problem, strategy.deadline_ms)
    return plan, {names[name]: NodeId(node) for name, node in (plan.placement or {}).items()}


def _free_beside(recovery: RecoveryState, placed: Mapping[Partition, NodeId]) -> dict[NodeId, float]:
    left = recovery.free()
    for partition, node in placed.items():
        left[node] -= recovery.costs.get(partition, 0.0)
    return left


def _level_by_level(recovery: RecoveryState, strategy: Strategy, copies: Mapping[Partition, NodeId]) -> Answer:
    """What fits where no node is filled with one level, in some passes: without queries that need more of a level that is full.

    All live queries wait for the busiest node of each level. Nodes that were left are full of the upper levels otherwise, those
    that join of the lower ones, and an epoch takes as long as both together. A few for which only crowding would find room are
    worth less than short epochs.
    """
    limits, levels, upstream = level_limits(recovery, strategy), recovery.graph.levels, recovery.graph.upstream
    failed, placed, full = _failed(recovery), dict[Partition, NodeId](), set[int]()
    there = set(recovery.of_phase(Phase.LIVE, Phase.CATCHING_UP))
    for _ in range(MOST_PASSES):
        waiting = {name: need.partitions - there for name, need in failed.items()}
        left = {name: failed[name] for name, more in waiting.items() if more and full.isdisjoint(levels[p] for p in more)}
        wanted = _planned(recovery, strategy, left, placed, _free_beside(recovery, placed))[1] if left else {}
        found = _in_place(recovery, wanted, copies, placed, limits)
        for partition in upstream if found else ():
            # One below a partition that found no room would wait for it, and keep others out.
            if partition in found and upstream[partition] <= there:
                placed[partition] = found[partition]
                there.add(partition)
        full |= {levels[partition] for partition in wanted if partition not in found}
        if len(found) == len(wanted):
            break
    return Answer(placed, tuple(name for name, need in failed.items() if need.partitions <= there))


def level_limits(recovery: RecoveryState, strategy: Strategy) -> dict[int, float]:
    """By level, how much of a node may be filled with it: what falls to a node when all are there, and a part of what is over."""
    capacity = [value for value in recovery.capacity.values() if value > 0]
    used = dict.fromkeys(recovery.graph.levels.values(), 0.0)
    for partition, level in recovery.graph.levels.items():
        used[level] += recovery.costs.get(partition, 0.0)
    whole = max(strategy.nodes_wanted, len(capacity)) * sum(capacity) / max(1, len(capacity)) or 1.0
    extra = max(LEAST_EXTRA, FILLED - sum(used.values()) / whole) / max(1, len(used))
    return {level: cost / whole + extra for level, cost in used.items()}


def _in_place(
    recovery: RecoveryState,
    placement: Mapping[Partition, NodeId],
    copies: Mapping[Partition, NodeId],
    placed: Mapping[Partition, NodeId] = MappingProxyType({}),
    limits: Mapping[int, float] | None = None,
) -> dict[Partition, NodeId]:
    """The same partitions with the stalled ones where their state is, and as many of the others as there is room for then."""
    left = _free_beside(recovery, placed)
    found: dict[Partition, NodeId] = {}
    for partition in placement:
        node, cost = recovery.statuses[partition].node, recovery.costs.get(partition, 0.0)
        if node is not None and (limits is None or left[node] >= cost - TOLERANCE):
            found[partition] = node
            left[node] -= cost
    if min(left.values(), default=0.0) < -TOLERANCE:
        return {}
    others = [partition for partition in placement if partition not in found]
    return found | spread(recovery, others, left, {**placed, **found}, copies=copies, filling=Filling(limits=limits))


@dataclass(frozen=True)
class Filling:
    """How full nodes may become: beyond what they have left, if need be; or with so much of their capacity by each level."""

    overfills: bool = False
    limits: Mapping[int, float] | None = None


WITHIN_CAPACITY, OVERFILLED = Filling(), Filling(overfills=True)


def spread(
    recovery: RecoveryState,
    partitions: Iterable[Partition],
    left: Mapping[NodeId, float],
    placed: Mapping[Partition, NodeId] | None = None,
    *,
    copies: Mapping[Partition, NodeId] = MappingProxyType({}),
    filling: Filling = WITHIN_CAPACITY,
) -> dict[Partition, NodeId]:
    """Each partition, the largest first, where there is room and its level has least to do; equal ones go round.

    An epoch goes down level by level, each as long as its busiest node, so a node that is full of one level makes all others
    wait. What finds no room is left out, or goes where most is left. What has state or a copy on a node stays there if it fits.
    """
    nodes = sorted(left)
    if not nodes:
        return {}
    number = {node: index for index, node in enumerate(nodes)}
    room, whole = np.array([left[node] for node in nodes]), np.array([recovery.capacity.get(node, 0.0) for node in nodes])
    busy = {level: np.zeros(len(nodes)) for level in set(recovery.graph.levels.values())}
    running = {p: known.node for p, known in recovery.statuses.items() if known.phase in (Phase.LIVE, Phase.CATCHING_UP)}
    for partition, node in (running | dict(placed or {})).items():
        if node in number:
            busy[recovery.graph.levels[partition]][number[node]] += recovery.costs.get(partition, 0.0)
    placement: dict[Partition, NodeId] = {}
    # Those with a copy choose first, so that others do not take the room beside it.
    for partition in sorted(partitions, key=lambda p: (p not in copies, -recovery.costs.get(p, 0.0), p.operator, p.key_group)):
        cost, level = recovery.costs.get(partition, 0.0), recovery.graph.levels[partition]
        mine, fits = busy[level], room >= cost - TOLERANCE
        if filling.limits is not None:
            # One that is larger than the limit has a node's level for itself.
            fits &= (mine + cost <= filling.limits[level] * whole + TOLERANCE) | (mine <= TOLERANCE)
        mine_at = number.get(recovery.statuses[partition].node or copies.get(partition, NodeId("")))
        if mine_at is not None and (fits[mine_at] or (filling.overfills and room[mine_at] >= room.max() - TOLERANCE)):
            chosen = mine_at
        elif fits.any():
            least = mine[fits].min()
            chosen = int(np.where(fits & (mine <= least + TOLERANCE), room, -np.inf).argmax())
        elif filling.overfills:
            chosen = int(room.argmax())
        else:
            continue
        placement[partition] = nodes[chosen]
        room[chosen] -= cost
        mine[chosen] += max(cost, LEAST_COST)
    return placement


def everything_down(
    graph: Graph, capacity: Mapping[NodeId, float], cuts: Cuts | int, head: int, shown: Mapping[Partition, int]
) -> RecoveryState:
    """A driver that has just started: nothing is up, each partition is at its newest checkpoint."""
    known = cuts.completed(graph.upstream.keys()) if isinstance(cuts, Cuts) else Cuts.whole(graph.upstream, cuts)
    status = {
        partition: transitions.PartitionStatus(Phase.DOWN, None, epoch, max(epoch, shown.get(partition, 0)))
        for partition in graph.upstream
        for epoch in (known.newest.get(partition, 0),)
    }
    # Those whose checkpoint is newer are live before the others, and feed them from then on.
    return RecoveryState(graph, status, dict(capacity), head=head, cuts=known, is_buffering=len(known.kept) > 1)


def with_costs(recovery: RecoveryState, costs: Mapping[Partition, float]) -> RecoveryState:
    """The same state with other measured costs."""
    return replace(recovery, costs=costs)
