"""What drivers tell of queries that go down and come back."""

from resurge.narration import Narrator
from resurge.protocols import recovery
from resurge.protocols.recovery import Facts, Phase
from resurge.scheduling import Strategy, everything_down, schedule
from resurge.telemetry.events import Event, NodeLost, QueriesChanged
from tests.unit.protocols.test_recovery import N2, whole


def told(narrator: Narrator, before: Facts, after: Facts) -> list[Event]:
    return list(narrator.changed(1.0, before, after))


def running() -> tuple[Narrator, Facts]:
    """A job whose queries have all run."""
    narrator, facts = Narrator(), whole()
    narrator.started(is_new=True)
    assert told(narrator, facts, facts) == []
    return narrator, facts


def test_a_query_with_nothing_to_catch_up_with_is_told_to_be_back_later() -> None:
    """It was rolled back to a checkpoint that is the head: it becomes live without a step, and is not forgotten."""
    narrator, facts = running()
    lost = recovery.nodes_lost(facts, [N2], 1)
    events = told(narrator, facts, lost)
    down = next(event.down for event in events if isinstance(event, QueriesChanged))
    assert any(isinstance(event, NodeLost) for event in events)
    assert down
    planned = schedule(lost, Strategy("eager"))
    assert planned.of_phase(Phase.CATCHING_UP)
    live = recovery.advanced(planned, {})
    assert live.is_whole
    back = told(narrator, live, live)
    assert [event.back for event in back if isinstance(event, QueriesChanged)] == [down]
    assert told(narrator, live, live) == []


def test_a_new_job_tells_of_nobody_and_one_that_goes_on_of_all() -> None:
    """Nobody waits for a job that never ran."""
    facts = whole()
    start = everything_down(facts.graph, facts.capacity, 0, 0, {})
    for is_new in (True, False):
        narrator = Narrator()
        narrator.started(is_new=is_new)
        assert told(narrator, start, start) == []
        back = [event.back for event in told(narrator, facts, facts) if isinstance(event, QueriesChanged)]
        assert back == ([] if is_new else [sorted(facts.graph.queries)])
