"""What comes back when, and where: within capacity, the most valuable first."""

from dataclasses import replace

from resurge.coordinator.scheduling import Strategy, after_loss, everything_down, schedule, spread
from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.protocols import recovery
from resurge.protocols.recovery import Facts, Graph, Phase, QueryNeed

CHEAP, DEAR, LARGE, ABOVE = (Partition(name, KeyGroup(0)) for name in ("cheap", "dear", "large", "above"))
N1, N2, N3 = (NodeId(name) for name in ("n1", "n2", "n3"))
STRATEGY = Strategy("incremental", "greedy", nodes_wanted=3)


def job() -> Facts:
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
    facts = recovery.begin(Graph(upstream, queries), dict.fromkeys((N1, N2, N3), 1.0), placement, 5)
    return replace(facts, costs={LARGE: 0.8, ABOVE: 0.4, CHEAP: 0.3, DEAR: 0.5})


def test_a_stalled_partition_takes_up_no_capacity() -> None:
    """Only n1 is left, where `large` waits for `above`: both of the valuable queries come back there."""
    facts = schedule(after_loss(job(), [N2, N3], STRATEGY), STRATEGY)
    assert facts.standing[LARGE].phase is Phase.STALLED
    assert {facts.standing[p].node for p in (CHEAP, DEAR)} == {N1}
    assert facts.standing[DEAR].phase is Phase.CATCHING_UP


def test_a_stalled_partition_whose_node_was_given_away_begins_anew_elsewhere() -> None:
    """n1 is full when a node comes on which `above` and `large` have room: `large` goes there, at the checkpoint."""
    facts = recovery.epoch_done(recovery.epoch_done(job(), 6), 7)
    facts = schedule(after_loss(facts, [N2, N3], STRATEGY), STRATEGY)
    facts = recovery.nodes_joined(facts, {NodeId("n4"): 1.3})
    planned = schedule(facts, STRATEGY)
    assert recovery.moved(facts, planned) == [LARGE]
    assert planned.standing[LARGE].node == "n4"
    assert (planned.standing[LARGE].cursor, facts.standing[LARGE].cursor) == (5, 7)
    assert all(value >= 0 for value in planned.free().values())


def test_a_stalled_partition_stays_where_its_state_is_if_there_is_room() -> None:
    """`above` comes back on another node; `large` keeps its state and cursor."""
    facts = recovery.epoch_done(job(), 6)
    facts = replace(facts, costs={**facts.costs, ABOVE: 0.15})
    lost = after_loss(facts, [N2], STRATEGY)
    planned = schedule(lost, STRATEGY)
    assert (planned.standing[LARGE].node, planned.standing[LARGE].cursor) == (N1, 6)
    assert planned.standing[LARGE].phase is Phase.CATCHING_UP
    assert recovery.moved(lost, planned) == []


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
    facts = replace(everything_down(graph, {N1: 1.0, N2: 1.0}, 0, 0, {}), costs=costs)
    planned = schedule(facts, STRATEGY)
    assert {planned.standing[p].node for p in windows} == {N1, N2}
    assert {planned.standing[p].node for p in counts} == {N1, N2}


def test_what_finds_no_room_is_left_out_or_overfills() -> None:
    """Three partitions of 0.6 on two nodes of 1."""
    three = [Partition("large", KeyGroup(group)) for group in range(3)]
    facts = everything_down(Graph(dict.fromkeys(three, frozenset()), {}), {N1: 1.0, N2: 1.0}, 0, 0, {})
    facts = replace(facts, costs=dict.fromkeys(three, 0.6))
    assert len(spread(facts, three, facts.capacity)) == 2
    assert len(spread(facts, three, facts.capacity, overfills=True)) == 3


def test_with_every_node_back_nothing_waits_for_room() -> None:
    """What fits and what does not come back at the same time; a stalled one goes where most is left, not where it was."""
    three = [Partition("large", KeyGroup(group)) for group in range(3)]
    graph = Graph(dict.fromkeys(three, frozenset()), {str(p): QueryNeed(1, frozenset((p,))) for p in three})
    facts = replace(everything_down(graph, {N1: 1.0, N2: 1.0}, 0, 0, {}), costs=dict.fromkeys(three, 0.6))
    complete = replace(STRATEGY, nodes_wanted=2, overfills_at_last=True)
    assert len(schedule(facts, replace(complete, overfills_at_last=False)).of_phase(Phase.DOWN)) == 1
    assert not schedule(facts, complete).of_phase(Phase.DOWN)


def test_a_stalled_partition_that_overfills_leaves_a_node_that_is_fuller_than_others() -> None:
    """`large` waits on n1, which `dear` and `cheap` took meanwhile; n2 and n3 come back and have more room for it."""
    facts = schedule(after_loss(job(), [N2, N3], STRATEGY), STRATEGY)
    facts = recovery.nodes_joined(facts, {NodeId("n4"): 0.7, NodeId("n5"): 0.7})
    planned = schedule(facts, replace(STRATEGY, overfills_at_last=True))
    assert planned.standing[LARGE].node in {"n4", "n5"}
    assert planned.standing[ABOVE].node != planned.standing[LARGE].node
