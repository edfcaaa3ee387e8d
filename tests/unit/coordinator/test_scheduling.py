"""What comes back when, and where: within capacity, the most valuable first."""

from dataclasses import replace

import pytest

from resurge.coordinator.scheduling import (
    OVERFILLED,
    Strategy,
    after_loss,
    everything_down,
    level_limits,
    moved,
    schedule,
    spread,
)
from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.protocols import recovery as transitions
from resurge.protocols.recovery import Graph, Phase, QueryNeed, RecoveryState

CHEAP, DEAR, LARGE, ABOVE = (Partition(name, KeyGroup(0)) for name in ("cheap", "dear", "large", "above"))
N1, N2, N3 = (NodeId(name) for name in ("n1", "n2", "n3"))
STRATEGY = Strategy("incremental", "greedy", nodes_wanted=3)


def job() -> RecoveryState:
    """`above` feeds `large`, which is worth little; `dear` is worth most. Node n1 has `large`, n2 `above`, n3 the others."""
    upstream = {
        ABOVE: frozenset[Partition](),
        CHEAP: frozenset[Partition](),
        DEAR: frozenset[Partition](),
        LARGE: frozenset((ABOVE,)),
    }
    queries = {
        "cheap/0": QueryNeed(2, frozenset((CHEAP,))),
        "dear/0": QueryNeed(10, frozenset((DEAR,))),
        "large/0": QueryNeed(1, frozenset((ABOVE, LARGE))),
    }
    placement = {LARGE: N1, ABOVE: N2, CHEAP: N3, DEAR: N3}
    recovery = transitions.begin(Graph(upstream, queries), dict.fromkeys((N1, N2, N3), 1.0), placement, 5)
    return replace(recovery, costs={LARGE: 0.8, ABOVE: 0.4, CHEAP: 0.3, DEAR: 0.5})


def test_a_stalled_partition_takes_up_no_capacity() -> None:
    """Only n1 is left, where `large` waits for `above`: both of the valuable queries come back there."""
    recovery = schedule(after_loss(job(), [N2, N3], STRATEGY), STRATEGY)
    assert recovery.statuses[LARGE].phase is Phase.STALLED
    assert {recovery.statuses[p].node for p in (CHEAP, DEAR)} == {N1}
    assert recovery.statuses[DEAR].phase is Phase.CATCHING_UP


def test_a_stalled_partition_whose_node_was_given_away_begins_anew_elsewhere() -> None:
    """n1 is full when a node comes on which `above` and `large` have room: `large` goes there, at the checkpoint."""
    recovery = transitions.epoch_done(transitions.epoch_done(job(), 6), 7)
    recovery = schedule(after_loss(recovery, [N2, N3], STRATEGY), STRATEGY)
    recovery = transitions.nodes_joined(recovery, {NodeId("n4"): 1.3})
    planned = schedule(recovery, STRATEGY)
    assert moved(recovery, planned) == [LARGE]
    assert planned.statuses[LARGE].node == "n4"
    assert (planned.statuses[LARGE].cursor, recovery.statuses[LARGE].cursor) == (5, 7)
    assert all(value >= 0 for value in planned.free().values())


def test_a_stalled_partition_stays_where_its_state_is_if_there_is_room() -> None:
    """`above` comes back on another node; `large` keeps its state and cursor."""
    recovery = transitions.epoch_done(job(), 6)
    recovery = replace(recovery, costs={**recovery.costs, ABOVE: 0.15})
    lost = after_loss(recovery, [N2], STRATEGY)
    planned = schedule(lost, STRATEGY)
    assert (planned.statuses[LARGE].node, planned.statuses[LARGE].cursor) == (N1, 6)
    assert planned.statuses[LARGE].phase is Phase.CATCHING_UP
    assert moved(lost, planned) == []


def test_blocking_waits_for_as_many_nodes_as_there_were() -> None:
    """And eager does not, whatever the load."""
    lost = after_loss(job(), [N2, N3], STRATEGY)
    assert schedule(lost, replace(STRATEGY, name="blocking")) is lost
    eager = schedule(lost, replace(STRATEGY, name="eager"))
    assert not eager.of_phase(Phase.DOWN, Phase.STALLED)
    assert min(eager.free().values()) == 0


def test_a_level_is_shared_out_among_all_nodes() -> None:
    """Two windows and what maintains each: a node with both windows would work while the other waits, and the reverse."""
    windows = [Partition("window", KeyGroup(group)) for group in range(2)]
    counts = [Partition("count", KeyGroup(group)) for group in range(2)]
    upstream = {**{p: frozenset[Partition]() for p in windows}, **{p: frozenset(windows) for p in counts}}
    graph = Graph(upstream, {"count": QueryNeed(1, frozenset(upstream))})
    costs = {**dict.fromkeys(windows, 0.4), **dict.fromkeys(counts, 0.3)}
    recovery = replace(everything_down(graph, {N1: 1.0, N2: 1.0}, 0, 0, {}), costs=costs)
    planned = schedule(recovery, STRATEGY)
    assert {planned.statuses[p].node for p in windows} == {N1, N2}
    assert {planned.statuses[p].node for p in counts} == {N1, N2}


def test_what_finds_no_room_is_left_out_or_overfills() -> None:
    """Three partitions of 0.6 on two nodes of 1."""
    three = [Partition("large", KeyGroup(group)) for group in range(3)]
    recovery = everything_down(Graph(dict.fromkeys(three, frozenset()), {}), {N1: 1.0, N2: 1.0}, 0, 0, {})
    recovery = replace(recovery, costs=dict.fromkeys(three, 0.6))
    assert len(spread(recovery, three, recovery.capacity)) == 2
    assert len(spread(recovery, three, recovery.capacity, filling=OVERFILLED)) == 3


def test_with_every_node_back_nothing_waits_for_room() -> None:
    """What fits and what does not come back at the same time; a stalled one goes where most is left, not where it was."""
    three = [Partition("large", KeyGroup(group)) for group in range(3)]
    graph = Graph(dict.fromkeys(three, frozenset()), {str(p): QueryNeed(1, frozenset((p,))) for p in three})
    recovery = replace(everything_down(graph, {N1: 1.0, N2: 1.0}, 0, 0, {}), costs=dict.fromkeys(three, 0.6))
    complete = replace(STRATEGY, nodes_wanted=2, overfills_at_last=True)
    assert len(schedule(recovery, replace(complete, overfills_at_last=False)).of_phase(Phase.DOWN)) == 1
    assert not schedule(recovery, complete).of_phase(Phase.DOWN)


def test_with_every_node_there_all_strategies_begin_with_the_same_placement() -> None:
    """Nothing is left out, so nothing is chosen: a comparison of strategies loses the same partitions with the same nodes."""
    many = [Partition("large", KeyGroup(group)) for group in range(5)]
    graph = Graph(dict.fromkeys(many, frozenset()), {str(p): QueryNeed(p.key_group, frozenset((p,))) for p in many})
    costs = {p: 0.5 + 0.05 * p.key_group for p in many}
    recovery = replace(everything_down(graph, {N1: 1.0, N2: 1.0, N3: 1.0}, 0, 0, {}), costs=costs)
    ours = schedule(recovery, replace(STRATEGY, overfills_at_last=True))
    assert ours.statuses == schedule(recovery, replace(STRATEGY, name="blocking")).statuses


def test_a_stalled_partition_that_overfills_leaves_a_node_that_is_fuller_than_others() -> None:
    """`large` waits on n1, which `dear` and `cheap` took meanwhile; n2 and n3 come back and have more room for it."""
    recovery = schedule(after_loss(job(), [N2, N3], STRATEGY), STRATEGY)
    recovery = transitions.nodes_joined(recovery, {NodeId("n4"): 0.7, NodeId("n5"): 0.7})
    planned = schedule(recovery, replace(STRATEGY, overfills_at_last=True))
    assert planned.statuses[LARGE].node in {"n4", "n5"}
    assert planned.statuses[ABOVE].node != planned.statuses[LARGE].node


def large_job() -> RecoveryState:
    """240 windows and as many consumers of four times their cost on ten nodes, all alike; windows are worth much."""
    windows = [Partition("window", KeyGroup(group)) for group in range(240)]
    below = [Partition("below", KeyGroup(group)) for group in range(240)]
    upstream = {p: frozenset[Partition]() for p in windows} | {p: frozenset((windows[p.key_group],)) for p in below}
    queries = {str(p): QueryNeed(9, frozenset((p,))) for p in windows}
    queries |= {str(p): QueryNeed(1, frozenset((p, windows[p.key_group]))) for p in below}
    nodes = [NodeId(f"n{number}") for number in range(10)]
    placement = {p: nodes[p.key_group % 10] for p in upstream}
    recovery = transitions.begin(Graph(upstream, queries), dict.fromkeys(nodes, 1.0), placement, 5)
    # Of each node's capacity, windows take 0.16 and what is below them 0.64.
    return replace(recovery, costs={p: 0.16 / 24 if p.operator == "window" else 0.64 / 24 for p in upstream})


def test_survivors_of_a_large_cluster_are_not_filled_with_one_level() -> None:
    """All windows would fit on the two nodes that are left; but epochs would take as long as windows and what is below, on full nodes."""
    strategy, before = Strategy("incremental", nodes_wanted=10), large_job()
    recovery = schedule(after_loss(before, [NodeId(f"n{number}") for number in range(2, 10)], strategy), strategy)
    limits = level_limits(recovery, strategy)
    assert {level: round(limit, 2) for level, limit in limits.items()} == {0: 0.36, 1: 0.84}
    for node in recovery.capacity:
        mine = [p for p, known in recovery.statuses.items() if known.node == node]
        used = {level: sum(recovery.costs[p] for p in mine if recovery.graph.levels[p] == level) for level in limits}
        assert all(used[level] <= limits[level] + 1e-9 for level in limits)
        # What windows leave free is used by others, though each window is worth more.
        assert 0.9 < sum(used.values()) <= 1.0 + 1e-9
    up = [p for p, known in recovery.statuses.items() if known.phase is not Phase.DOWN]
    assert all(recovery.graph.upstream[p] <= set(up) for p in up)


def test_what_fits_only_beside_others_of_its_level_waits_for_missing_nodes_and_for_no_others(monkeypatch) -> None:
    """On a large cluster: two of three windows on one node of two would be more of a level than that node should have."""
    monkeypatch.setattr("resurge.coordinator.scheduling.LARGE_PROBLEM", 0)
    windows = [Partition("window", KeyGroup(group)) for group in range(3)]
    count = Partition("count", KeyGroup(0))
    upstream = {**{p: frozenset[Partition]() for p in windows}, count: frozenset(windows[:1])}
    graph = Graph(upstream, {str(p): QueryNeed(1, frozenset((p, *upstream[p]))) for p in upstream})
    costs = {**dict.fromkeys(windows, 0.5), count: 0.1}
    recovery = replace(everything_down(graph, {N1: 1.0, N2: 1.0}, 0, 0, {}), costs=costs)
    waiting = schedule(schedule(recovery, STRATEGY), STRATEGY)
    assert len(waiting.of_phase(Phase.DOWN)) == 1
    alone = replace(STRATEGY, nodes_wanted=2)
    planned = schedule(schedule(recovery, alone), alone)
    assert not planned.of_phase(Phase.DOWN) and min(planned.free().values()) >= 0


def fragmented(*costs: float) -> RecoveryState:
    """Partitions of these costs, the last of which is down; each of the others lives on a node of its own."""
    parts = [Partition("large", KeyGroup(group)) for group in range(len(costs))]
    graph = Graph(dict.fromkeys(parts, frozenset()), {str(p): QueryNeed(1, frozenset((p,))) for p in parts})
    nodes = [NodeId(f"n{number}") for number in range(len(parts))]
    recovery = transitions.begin(graph, dict.fromkeys(nodes, 1.0), dict(zip(parts, nodes, strict=True)), 5)
    return after_loss(replace(recovery, costs=dict(zip(parts, costs, strict=True))), nodes[-1:], STRATEGY)


@pytest.mark.parametrize(
    ("costs", "node"),
    [((0.6, 0.5, 0.6), "n1"), ((0.6, 0.5, 0.4), "n1"), ((0.9, 0.8, 0.4), None), ((0.7, 0.65, 0.6), None)],
    ids=["in sum", "alone", "not in sum", "too full"],
)
def test_what_fits_only_in_sum_fills_a_node_a_little_more(costs: tuple[float, ...], node: str | None) -> None:
    """Two of three nodes of 1 are left, and no other comes: 0.6 beside 0.5 is little too much, 0.6 beside 0.65 is more than that."""
    recovery, wanted = fragmented(*costs), replace(STRATEGY, overfills_at_last=True)
    lost = Partition("large", KeyGroup(len(costs) - 1))
    assert schedule(recovery, wanted).statuses[lost].node == node


def test_what_fits_only_in_sum_comes_back_after_what_fits() -> None:
    """Who catches up first may be what the room is for; then nothing is left out."""
    recovery, wanted = fragmented(0.6, 0.5, 0.6), replace(STRATEGY, overfills_at_last=True)
    first, lost = (Partition("large", KeyGroup(group)) for group in (0, 2))
    busy = {**recovery.statuses, first: replace(recovery.statuses[first], phase=Phase.CATCHING_UP)}
    assert schedule(replace(recovery, statuses=busy), wanted).statuses[lost].node is None
