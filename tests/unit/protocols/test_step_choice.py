"""How much is caught up at once, and how."""

from dataclasses import replace

import pytest

from resurge.model.names import NodeId, Partition
from resurge.protocols.catch_up import CatchUp, Coverage
from resurge.protocols.epoch_sets import EpochSet
from resurge.protocols.recovery import Phase, QueryNeed, RecoveryState
from resurge.protocols.step_choice import (
    StepChoice,
    epochs_beside,
    epochs_per_step,
    has_room,
)
from resurge.protocols.step_timing import Progress, StepCost, StepTiming
from tests.unit.protocols.test_catch_up import after, lost_and_scheduled
from tests.unit.protocols.test_recovery import LONE, N1, N2, N3, N4, A, B, C, whole

QUIET = StepTiming(interval_s=5.0, usual_s=1.0, normal_s=1.0, cost=StepCost(1.0), unit_s=1.0, is_concurrent=True)
ALONE = replace(QUIET, is_concurrent=False)


def lagging(epochs: int, cost: float = 0.25) -> RecoveryState:
    """b is back on another node and has as many epochs to go as there were since the checkpoint of epoch 5."""
    recovery = lost_and_scheduled(after(5 + epochs))
    capacity = {N4: 1.0, **dict.fromkeys(whole().capacity, 1.0)}
    return replace(recovery, capacity=capacity, costs={A: 0.5, B: cost, C: 0.0})


def choice(recovery: RecoveryState, timing: StepTiming) -> StepChoice:
    return StepChoice(recovery, {(A, B): EpochSet.of(range(6, recovery.head + 1))}, {}, timing)


def test_steps_always_gain_on_the_head() -> None:
    """One live epoch passes between two steps, so even without any time left a step takes two, unless others took them."""
    assert epochs_per_step(0.0, 5.0, 0.1) == 2
    assert epochs_per_step(0.0, 5.0, 0.1, least=0) == 0
    assert epochs_per_step(100.0, 1.0, 0.1) == 16


def test_nodes_that_are_less_busy_catch_up_while_the_busiest_works() -> None:
    """a fills half of its node in each epoch; b alone on another has time for two epochs, and with some patience for three."""
    recovery = lagging(3)
    step = choice(recovery, ALONE).largest_step
    assert step is not None
    assert (epochs_beside(recovery, step, 0.0), epochs_beside(recovery, step, 0.25)) == (2, 3)


def test_live_epochs_carry_steps_only_where_there_is_no_room_between_them() -> None:
    """Two epochs of a second and an overhead of one need three seconds, some of which readers do not notice."""
    assert has_room(replace(ALONE, usual_s=2.6), 1.0)
    assert not has_room(replace(ALONE, usual_s=3.0), 1.0)


def test_what_is_far_behind_catches_up_while_live_epochs_go_on() -> None:
    """b has a node to itself, so that its whole time is taken; no live epoch carries anything."""
    asked = choice(lagging(9), QUIET)
    assert asked.runs_in_background
    [step] = asked.background_steps(1.0)
    assert step.partitions == {B: range(6, 15)}
    assert asked.step_with_epoch() is None


def test_the_last_stretch_is_taken_with_a_live_epoch() -> None:
    """Two epochs are left: no flight is worth it unless it lands before the next epoch is due, or hardly later."""
    asked = choice(lagging(2), QUIET)
    assert asked.background_steps(0.5) == []
    assert asked.final_step_before_epoch(0.5) is None
    beside = asked.step_with_epoch()
    assert beside is not None
    assert beside.partitions == {B: range(6, 8)}
    assert asked.background_steps(1.2) == [beside]
    assert asked.final_step_before_epoch(1.2) is beside


def test_a_live_epoch_that_has_waited_takes_nothing_along() -> None:
    """One that begins late has used its slack: those that are nearly caught up go on in the background."""
    asked = choice(lagging(2), replace(QUIET, late_s=1.0))
    assert asked.step_with_epoch() is None
    [step] = asked.background_steps(0.0)
    assert step.partitions == {B: range(6, 8)}


def test_a_step_with_a_shadow_ends_where_buffers_begin() -> None:
    """Only the first epoch is not buffered: the step takes two, and the next one needs no shadow."""
    recovery = lagging(9)
    asked = StepChoice(recovery, {(A, B): EpochSet.of(range(7, recovery.head + 1))}, {}, QUIET)
    [step] = asked.background_steps(1.0)
    assert step.shadows == {A: range(6, 7)}
    assert step.partitions == {B: range(6, 8)}


def test_where_jobs_run_one_by_one_steps_fit_between_two_epochs() -> None:
    """Four seconds, less one of overhead, at a quarter of a second an epoch; hardly any time still takes two."""
    asked = choice(lagging(16), ALONE)
    assert not asked.runs_in_background
    steps = [asked.step_before_epoch(4.0), asked.step_before_epoch(0.0), asked.step_before_epoch(None)]
    assert [step.longest for step in steps if step is not None] == [14, 2, 16]


def test_a_live_epoch_waits_for_one_step_when_hardly_anything_is_live() -> None:
    """Everything of worth is on its way back: a step takes what fits into an interval; the next one is as any other."""
    recovery = lagging(16)
    worth = {name: replace(need, priority=100 if B in need.partitions else 1) for name, need in recovery.graph.queries.items()}
    recovery = replace(recovery, graph=replace(recovery.graph, queries=worth))
    asked = choice(recovery, QUIET)
    assert asked.recovery_comes_first
    assert not asked.runs_in_background
    step = asked.step_before_epoch(0.1)
    assert step is not None
    assert step.longest == 16
    slow = choice(recovery, replace(QUIET, unit_s=4.0)).step_before_epoch(0.1)
    assert slow is not None
    assert slow.longest == 4
    assert asked.step_with_epoch() == asked.largest_step
    later = choice(recovery, replace(QUIET, taken=4))
    assert not later.recovery_comes_first
    assert later.runs_in_background
    again = choice(recovery, replace(QUIET, before_s=2.0 * QUIET.latency_slack_s))
    assert not again.recovery_comes_first
    assert again.runs_in_background


def test_live_epochs_wait_for_all_while_they_would_serve_nobody() -> None:
    """Nothing is live: the head stays where it is until it is met, however long a step takes, unless sources have queries."""
    recovery = lagging(16)
    recovery = replace(recovery, statuses=dict.fromkeys(recovery.statuses, recovery.statuses[B]))
    slow = replace(QUIET, unit_s=100.0, taken=8)
    asked = choice(recovery, slow)
    assert asked.recovery_comes_first
    assert not asked.runs_in_background
    assert asked.step_before_epoch(0.0) == asked.largest_step is not None
    assert asked.step_with_epoch() is None
    served = choice(replace(recovery, graph=replace(recovery.graph, has_source_queries=True)), slow)
    assert not served.recovery_comes_first


def test_nobody_behind_is_no_step() -> None:
    """All live."""
    asked = choice(after(8), QUIET)
    assert (asked.largest_step, asked.background_steps(9.0), asked.step_before_epoch(9.0), asked.step_with_epoch()) == (
        None,
        [],
        None,
        None,
    )


def test_steps_have_lost_when_several_in_a_row_began_no_nearer_to_the_head() -> None:
    """One that gained makes good for those that did not."""
    step = choice(lagging(4), QUIET).largest_step
    assert step is not None

    def is_stuck(*lags: int) -> bool:
        progress = Progress()
        for lag in lags:
            progress = progress.begun(step, lagging(lag))
        return progress.is_stuck

    assert is_stuck(4, 4, 5, 5)
    assert not is_stuck(4, 4, 5)
    assert not is_stuck(4, 4, 5, 4, 4, 4)
    assert not is_stuck(9, 8, 7, 6, 5)


def test_short_steps_tell_of_the_overhead_and_long_ones_of_the_work() -> None:
    """Two epochs of half a second took two seconds, a second more than was thought; ten took half of what was thought."""
    assert StepCost(0.0).after(2.0, 2, 0.5) == StepCost(0.5)
    assert StepCost(1.0).after(3.5, 10, 0.5) == StepCost(1.0, 0.75)
    assert StepCost(0.0, 0.3).after(0.0, 10, 0.5).factor == 0.25


def test_where_live_partitions_wait_for_the_same_core_steps_stay_short() -> None:
    """But not where b shares its node with a live partition, whose next epoch is due in a second or two."""
    recovery = lagging(16)
    statuses = {**recovery.statuses, B: replace(recovery.statuses[B], node=recovery.statuses[A].node)}
    recovery = replace(recovery, statuses=statuses)
    learnt = replace(QUIET, cost=StepCost(1.0, 0.5))
    steps = [
        choice(recovery, timing).background_steps(budget_s) for timing, budget_s in ((QUIET, 1.0), (learnt, 1.0), (learnt, 2.0))
    ]
    assert [step.longest for [step] in steps] == [4, 4, 6]


def test_far_behind_a_step_takes_a_quarter_of_the_lag() -> None:
    """b shares its node with a live partition and has no time before the next epoch: two epochs would not gain on the head."""
    recovery = lagging(16, cost=1.0)
    statuses = {**recovery.statuses, B: replace(recovery.statuses[B], node=recovery.statuses[A].node)}
    [step] = choice(replace(recovery, statuses=statuses), QUIET).background_steps(0.0)
    assert step.longest == 4


def test_readers_are_patient_as_they_are_used_to_more() -> None:
    """Epochs of one second that took three before the failure may wait for one second, and for a part of their latency more."""
    used = replace(QUIET, usual_s=1.0, normal_s=3.0)
    assert used.latency_slack_s == 1.0 + 0.15 * (2.5 + 1.0)
    assert replace(used, usual_s=4.0).latency_slack_s == 0.15 * (2.5 + 4.0)


def test_after_a_long_epoch_the_next_one_waits_for_less() -> None:
    """Two long ones in a row would make every query late; one that took a little longer leaves all of the slack."""
    slack_s = QUIET.latency_slack_s
    waits_s = [replace(QUIET, over_s=over * slack_s).waiting_slack_s for over in (0.0, 0.5, 1.0, 2.0)]
    assert waits_s == pytest.approx([slack_s, slack_s, slack_s / 2, 0.0])


def returning(
    head: int, cursors: dict[Partition, int], nodes: dict[Partition, NodeId], *, is_buffering: bool = True
) -> RecoveryState:
    """Some are on their way back, all others live; the last checkpoint is of epoch 5."""
    recovery = after(head)
    statuses = {
        partition: replace(
            known,
            phase=Phase.CATCHING_UP if partition in cursors else Phase.LIVE,
            cursor=cursors.get(partition, head),
            node=nodes.get(partition, known.node),
        )
        for partition, known in recovery.statuses.items()
    }
    # Somebody reads a alone, so that live epochs do not wait for the others.
    graph = replace(recovery.graph, queries={**recovery.graph.queries, "a/0": QueryNeed(5, frozenset((A,)))})
    costs = dict.fromkeys(statuses, 0.2)
    return replace(recovery, graph=graph, statuses=statuses, is_buffering=is_buffering, costs=costs)


ALL_BUFFERED: Coverage = {pair: EpochSet.of(range(6, 40)) for pair in ((A, B), (B, C))}


def test_every_node_goes_on_at_its_own_pace() -> None:
    """b and c are on different nodes: c takes what b has behind it, while b goes on, whose node must be there to send it."""
    recovery = returning(30, {B: 12, C: 8}, {B: N2, C: N3})
    lower, upper = StepChoice(recovery, ALL_BUFFERED, {}, QUIET).background_steps(1.0)
    assert (lower.partitions, upper.partitions) == ({C: range(9, 13)}, {B: range(13, 29)})
    assert lower.buffered == {(B, C): range(9, 13)}
    assert StepChoice(recovery, ALL_BUFFERED, {}, QUIET, [lower]).background_steps(1.0) == [upper]
    assert StepChoice(recovery, ALL_BUFFERED, {}, QUIET, [upper]).background_steps(1.0) == []


def test_without_buffers_all_go_together() -> None:
    """What b produces is nowhere else, so that c takes it from b in the same job; and only when nothing is under way."""
    recovery = returning(30, {B: 8, C: 8}, {B: N2, C: N3}, is_buffering=False)
    [step] = StepChoice(recovery, {(A, B): EpochSet.of(range(6, 40))}, {}, QUIET).background_steps(1.0)
    assert step.partitions.keys() == {B, C}
    assert StepChoice(recovery, {}, {}, QUIET, [CatchUp({LONE: range(6, 7)})]).background_steps(1.0) == []


def test_those_whom_the_same_shadows_feed_go_together() -> None:
    """Buffers have nothing: a shadow of a feeds b; nobody else leads shadows on meanwhile, and lone needs none."""
    recovery = returning(30, {B: 8, C: 8, LONE: 8}, {B: N2, C: N3, LONE: N4})
    steps = StepChoice(recovery, {}, {A: 8}, QUIET).background_steps(1.0)
    assert sorted(bool(step.shadows) for step in steps) == [False, True]
    under_way = CatchUp({}, {A: range(6, 9)})
    [alone] = StepChoice(recovery, {}, {A: 8}, QUIET, [under_way]).background_steps(1.0)
    assert alone.partitions.keys() == {LONE}


def test_those_who_feed_each_other_take_the_last_stretch_together() -> None:
    """On its own c would always be one step behind b: four epochs are few enough for one step for both."""
    recovery = returning(30, {B: 28, C: 26}, {B: N2, C: N2})
    [step] = StepChoice(recovery, ALL_BUFFERED, {}, QUIET).background_steps(1.0)
    assert step.cursors() == {B: 30, C: 30}


def test_who_is_nearly_there_joins_the_epoch_while_others_go_on() -> None:
    """b is one behind, lone far; not if lone shares b's node, whose core it takes."""
    apart = StepChoice(returning(30, {B: 29, LONE: 8}, {B: N2, LONE: N4}), ALL_BUFFERED, {}, QUIET)
    joined = apart.step_with_epoch()
    assert joined is not None
    assert joined.partitions == {B: range(30, 31)}
    assert [step.partitions.keys() for step in apart.background_steps(0.0)] == [{LONE}]
    shared = StepChoice(returning(30, {B: 29, LONE: 8}, {B: N1, LONE: N1}), ALL_BUFFERED, {}, QUIET)
    assert shared.step_with_epoch() is None


def test_a_live_epoch_takes_along_what_is_worth_most_as_far_as_it_can() -> None:
    """b and lone are both one behind, on nodes that are full for one epoch: lone alone, if it is worth more for what it costs."""
    recovery = returning(30, {B: 29, LONE: 29}, {B: N2, LONE: N4})
    recovery = replace(recovery, costs={A: 0.5, B: 0.9, C: 0.0, LONE: 0.9})
    patient, busy = (replace(QUIET, usual_s=seconds) for seconds in (5.0, 1.0))
    both = StepChoice(recovery, ALL_BUFFERED, {}, patient).step_with_epoch()
    assert both is not None
    assert both.partitions.keys() == {B, LONE}
    for priority, first in ((9, LONE), (1, B)):
        queries = {"b/0": QueryNeed(3, frozenset((A, B))), "lone/0": QueryNeed(priority, frozenset((LONE,)))}
        queries |= {"a/0": QueryNeed(20, frozenset((A,)))}
        valued = replace(recovery, graph=replace(recovery.graph, queries=queries))
        one = StepChoice(valued, ALL_BUFFERED, {}, busy).step_with_epoch()
        assert one is not None
        assert one.partitions.keys() == {first}


def test_what_shadows_feed_is_not_taken_along_with_what_needs_none() -> None:
    """Nothing of a is buffered for b; lone reads its own input."""
    recovery = returning(30, {B: 29, LONE: 29}, {B: N2, LONE: N4})
    joined = StepChoice(recovery, {}, {A: 28}, QUIET).step_with_epoch()
    assert joined is not None
    assert (joined.partitions.keys(), joined.shadows) == ({LONE}, {})
    alone = StepChoice(returning(30, {B: 29}, {B: N2}), {}, {A: 28}, QUIET).step_with_epoch()
    assert alone is not None
    assert (alone.partitions.keys(), alone.shadows.keys()) == ({B}, {A})


def test_others_help_to_read_the_sources_where_that_would_take_long() -> None:
    """One node would read for ten seconds: nodes without live partitions help first, and all of them if nobody may read for long."""
    recovery = returning(10, {A: 5}, {A: N4})
    step = StepChoice(recovery, ALL_BUFFERED, {}, QUIET).largest_step
    assert step is not None
    assert StepChoice(recovery, ALL_BUFFERED, {}, QUIET).readers(step) == frozenset()
    brief = StepChoice(recovery, ALL_BUFFERED, {}, replace(QUIET, reading_s=0.05))
    assert brief.readers(step) == frozenset()
    heavy = StepChoice(recovery, ALL_BUFFERED, {}, replace(QUIET, reading_s=2.0))
    assert heavy.readers(step) == recovery.capacity.keys() - {N4}
    assert brief.epoch_s(step) < heavy.epoch_s(step)


def test_a_step_goes_on_without_those_that_need_buffers_of_busy_nodes() -> None:
    """b needs what a's node has buffered, and that node is busy; the one beside it goes on."""
    recovery = returning(30, {B: 20, LONE: 20}, {B: N2, LONE: N4})
    busy = {recovery.statuses[A].node}
    asked = StepChoice(recovery, ALL_BUFFERED, {}, QUIET)
    step = asked._step_beside(busy, [B, LONE], 1.0)
    assert step is not None and set(step.partitions) == {LONE}
