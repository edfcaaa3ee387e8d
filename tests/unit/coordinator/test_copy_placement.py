"""Where copies are put, from loads as they are measured: on machines that are now faster, now slower."""

import random
from dataclasses import replace

import pytest

from resurge.coordinator.copy_placement import answered, check_problem, sampled
from resurge.coordinator.copying import CopySettings
from resurge.coordinator.inputs import Member
from resurge.coordinator.scheduling import Strategy
from resurge.coordinator.starting import Found, first_state
from resurge.coordinator.state import Description, JobState, Settings
from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.protocols import recovery as transitions
from resurge.protocols.recovery import Graph, QueryNeed

NODES = [NodeId(f"n{index}") for index in range(3)]
FIRST, SECOND = ([Partition(name, KeyGroup(group)) for group in range(10)] for name in ("first", "second"))
COSTS = dict.fromkeys((*FIRST, *SECOND), 0.02)


def job() -> JobState:
    """The first operator on n1, the second one on n2, n0 empty."""
    graph = Graph({p: frozenset[Partition]() for p in COSTS}, {str(p): QueryNeed(1, frozenset((p,))) for p in COSTS})
    settings = Settings(copying=CopySettings(copies=1))
    state = first_state(
        settings,
        Description("job", "test", 1, {}, 10, {}),
        Strategy("incremental"),
        graph,
        {node: Member(1.0, domain=str(node)) for node in NODES},
        Found(costs=COSTS),
    )
    placement = {partition: NODES[1 if partition in FIRST else 2] for partition in COSTS}
    return replace(state, recovery=transitions.begin(graph, state.recovery.capacity, placement, 0))


def watched(state: JobState, epochs: int, noise: random.Random | None) -> JobState:
    """Load swings from the first operator to the second; noise makes all tasks of an epoch faster or slower together."""
    for epoch in range(1, epochs + 1):
        factor = noise.uniform(0.3, 3.0) if noise else 1.0
        percent = epoch / 2
        costs = {p: factor * (100 - percent if p in FIRST else percent) / 100 for p in COSTS}
        recovery = replace(state.recovery, head=epoch, costs=costs)
        state = replace(state, recovery=recovery, copying=sampled(state.copying, recovery))
    return state


@pytest.mark.parametrize("seed", range(5))
def test_a_machine_that_is_now_faster_now_slower_hides_not_where_load_goes(seed: int) -> None:
    """What grows is copied to where load falls, whatever the speed of the whole machine did meanwhile."""
    question = check_problem(watched(job(), 30, random.Random(seed)))
    assert question is not None
    placement = answered(question).placement
    assert {placement[str(partition)][0] for partition in SECOND} == {NODES[1]}
    undisturbed = check_problem(watched(job(), 30, None))
    assert undisturbed is not None
    for name, series in question.problem.loads.items():
        assert series == pytest.approx(undisturbed.problem.loads[name])


def test_copies_that_were_placed_before_load_moved_follow_it_one_and_all() -> None:
    """The load that begins to grow is small yet, and it is the one that will move: none of its copies stays where it does not help."""
    state = watched(job(), 30, None)
    away = {(partition, NODES[0]): None for partition in SECOND}
    question = check_problem(replace(state, copies=away))  # type: ignore[arg-type]
    assert question is not None and all(question.problem.current[str(partition)] == ("n0",) for partition in SECOND)
    assert {answered(question).placement[str(partition)][0] for partition in SECOND} == {NODES[1]}
