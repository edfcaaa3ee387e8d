"""What drivers tell of queries that go down and come back."""

from resurge.narration import Narrator
from resurge.protocols import recovery
from resurge.protocols.recovery import Facts, Phase
from resurge.scheduling import Strategy, everything_down, schedule
from resurge.telemetry.events import Event, NodeLost, QueriesChanged
from tests.unit.protocols.test_recovery import N1, N2, whole


def told(narrator: Narrator, before: Facts, after: Facts) -> list[Event]:
    return list(narrator.changed(1.0, before, after))


def back(narrator: Narrator, facts: Facts) -> list[str]:
    return [query for event in narrator.committed(1.0, facts) if isinstance(event, QueriesChanged) for query in event.back]


def test_a_query_with_nothing_to_catch_up_with_is_back_with_the_next_commit() -> None:
    """It was rolled back to a checkpoint that is the head: it becomes live without a step, and is not forgotten."""
    narrator, facts = Narrator(), whole()
    narrator.started(is_new=True)
    assert back(narrator, facts) == []
    lost = recovery.nodes_lost(facts, [N2], 1)
    events = told(narrator, facts, lost)
    assert [event.down for event in events if isinstance(event, QueriesChanged)] == [["c/0"]]
    assert any(isinstance(event, NodeLost) for event in events)
    planned = schedule(lost, Strategy("eager"))
    assert planned.of_phase(Phase.CATCHING_UP)
    assert back(narrator, planned) == []
    live = recovery.advanced(planned, {})
    assert live.is_whole
    assert told(narrator, planned, live) == []
    assert back(narrator, live) == ["c/0"]
    assert back(narrator, live) == []


def test_a_query_that_is_lost_again_before_it_showed_anything_is_told_once() -> None:
    """Down stays down until something is committed."""
    narrator, facts = Narrator(), whole()
    narrator.started(is_new=True)
    assert back(narrator, facts) == []
    lost = recovery.nodes_lost(facts, [N2], 1)
    assert told(narrator, facts, lost)
    live = recovery.advanced(schedule(lost, Strategy("eager")), {})
    again = recovery.nodes_lost(live, [N1], 1)
    assert [event for event in told(narrator, live, again) if isinstance(event, QueriesChanged)] == []


def test_a_new_job_tells_of_nobody_and_one_that_goes_on_of_all() -> None:
    """Nobody waits for a job that never ran."""
    facts = whole()
    start = everything_down(facts.graph, facts.capacity, 0, 0, {})
    for is_new in (True, False):
        narrator = Narrator()
        narrator.started(is_new=is_new)
        assert told(narrator, start, start) == []
        assert back(narrator, start) == []
        assert back(narrator, facts) == ([] if is_new else sorted(facts.graph.queries))
