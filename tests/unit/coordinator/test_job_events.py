"""What drivers tell of queries that go down and come back."""

from dataclasses import replace

from resurge.coordinator.job_events import Emitted, planned
from resurge.coordinator.scheduling import Strategy, everything_down, schedule, with_costs
from resurge.protocols import recovery as transitions
from resurge.protocols.recovery import Phase, RecoveryState
from resurge.telemetry.events import Event, LoadMeasured, NodeLost, QueriesChanged, RecoveryPlanned
from tests.unit.protocols.test_recovery import N1, N2, whole


class Telling:
    """What has been emitted so far, one call after another."""

    def __init__(self, *, is_new: bool = True) -> None:
        self.emitted = Emitted.at_start(is_new=is_new)

    def changed(self, before: RecoveryState, after: RecoveryState) -> list[Event]:
        self.emitted, events = self.emitted.changed(1.0, before, after)
        return events

    def back(self, recovery: RecoveryState) -> list[str]:
        self.emitted, events = self.emitted.committed(1.0, recovery)
        return [query for event in events if isinstance(event, QueriesChanged) for query in event.back]


def test_a_query_with_nothing_to_catch_up_with_is_back_with_the_next_commit() -> None:
    """It was rolled back to a checkpoint that is the head: it becomes live without a step, and is not forgotten."""
    telling, recovery = Telling(), whole()
    assert telling.back(recovery) == []
    lost = transitions.nodes_lost(recovery, [N2], 1)
    events = telling.changed(recovery, lost)
    assert [event.down for event in events if isinstance(event, QueriesChanged)] == [["c/0"]]
    assert any(isinstance(event, NodeLost) for event in events)
    planned = schedule(lost, Strategy("eager"))
    assert planned.of_phase(Phase.CATCHING_UP)
    assert telling.back(planned) == []
    live = transitions.advanced(planned, {})
    assert live.all_live
    assert telling.changed(planned, live) == []
    assert telling.back(live) == ["c/0"]
    assert telling.back(live) == []


def test_a_query_that_is_lost_again_before_it_showed_anything_is_told_once() -> None:
    """Down stays down until something is committed."""
    telling, recovery = Telling(), whole()
    assert telling.back(recovery) == []
    lost = transitions.nodes_lost(recovery, [N2], 1)
    assert telling.changed(recovery, lost)
    live = transitions.advanced(schedule(lost, Strategy("eager")), {})
    again = transitions.nodes_lost(live, [N1], 1)
    assert [event for event in telling.changed(live, again) if isinstance(event, QueriesChanged)] == []


def test_a_new_job_tells_of_nobody_and_one_that_goes_on_of_all() -> None:
    """Nobody waits for a job that never ran."""
    recovery = replace(whole(), revision=1)
    start = everything_down(recovery.graph, recovery.capacity, 0, 0, {})
    for is_new in (True, False):
        telling = Telling(is_new=is_new)
        assert telling.changed(start, start) == []
        assert telling.back(start) == []
        assert telling.back(recovery) == ([] if is_new else sorted(recovery.graph.queries))


def test_load_is_told_when_something_moved_and_every_few_seconds() -> None:
    """A page that shows load is at most some seconds behind, and a steady job writes little."""
    emitted, recovery = Emitted(), whole()

    def loads(now_s: float, seen: RecoveryState) -> list[Event]:
        nonlocal emitted
        emitted, events = emitted.measured(now_s, seen)
        return events

    assert len(loads(0.0, recovery)) == 1
    assert loads(2.0, recovery) == []
    lost = transitions.nodes_lost(recovery, [N2], 1)
    (moved,) = loads(2.5, lost)
    assert isinstance(moved, LoadMeasured)
    assert sum(sum(load.phases.values()) for load in moved.operators.values()) == len(recovery.statuses)
    assert set(moved.nodes) == set(lost.capacity)
    assert loads(3.0, recovery) == []
    assert len(loads(8.0, lost)) == 1


def test_plan_says_what_was_free_and_what_each_failed_query_needed() -> None:
    """The reason of a decision is in the event that tells of it, also for queries that were left out."""
    recovery = with_costs(whole(), dict.fromkeys(whole().statuses, 0.25))
    lost = transitions.nodes_lost(recovery, [N2], 1)
    after = schedule(lost, Strategy("eager"))
    (told_of,) = planned(1.0, lost, after, 0.0, "eager")
    assert isinstance(told_of, RecoveryPlanned)
    assert told_of.strategy == "eager"
    assert set(told_of.free) == set(lost.capacity)
    assert "c" in told_of.needs
    assert told_of.needs["c"].cpu_s_per_s == 0.25 * told_of.needs["c"].partitions
