"""Jobs of usual epochs: made without a look at any partition, and the same as if each had been looked at."""

import numpy as np
import pytest

from resurge.coordinator.canonical import digest
from resurge.coordinator.commands import Run
from resurge.coordinator.costs import used
from resurge.coordinator.inputs import CPU_S, Done, Input, JobEnded, JobResult, NodesChanged, Tick
from resurge.coordinator.measuring import measured
from resurge.coordinator.snapshots import decoded, encoded
from resurge.coordinator.state import JobState
from tests.unit.coordinator.test_coordinator_handle import finished, running, told


def as_read(state: JobState) -> JobState:
    """A state as a log has it: every value of it, and nothing that is known without a look at each partition."""
    found = decoded(encoded(state))
    assert isinstance(found, JobState)
    return found


def settled() -> tuple[JobState, Run]:
    """A job that has run for some epochs."""
    state, run = running()
    for _ in range(4):
        state, run, _ = finished(state, run)
    return state, run


def test_a_job_that_was_made_at_once_is_the_same_as_one_made_partition_by_partition() -> None:
    """A state that was read from a log goes on alike, though it has to look at each partition."""
    state, run = settled()
    assert run.job.steady is not None
    state, _ = told(state, JobEnded(run.job.attempt, JobResult(published_epochs=[5], rows_read=1)))
    for number in sorted(state.open_commands):
        state, _ = told(state, Done(number))
    after, sent = told(state, Tick(), now_s=100.0)
    again, alike = told(as_read(state), Tick(), now_s=100.0)
    made, looked = (next(each.job for each in found if isinstance(each, Run)) for found in (sent, alike))
    assert made.steady is not None and looked.steady is None
    assert made == looked and made.tasks[0] == looked.tasks[0] and digest(after) == digest(again)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_usual_job_ends_as_any_other(is_lost: bool) -> None:
    """It is committed, or void, with the same commands and the same state afterwards."""
    state, run = settled()
    result = JobEnded(run.job.attempt, JobResult(published_epochs=[5], rows_read=1))
    event: Input = NodesChanged([min(run.job.nodes)]) if is_lost else result
    after, sent = told(state, event)
    again, alike = told(as_read(state), event)
    assert sent == alike and digest(after) == digest(again) and as_read(after) == as_read(again)
    assert not is_lost or all(each.job.steady is None for each in sent if isinstance(each, Run))


def test_costs_are_smoothed_for_those_that_were_measured_and_kept_for_the_others() -> None:
    """A column says NaN of a key group that was not measured."""
    state, _ = settled()
    first, second, *others = state.recovery.graph.upstream
    columns = {name: np.array([0.5], CPU_S).tobytes() for name in (first.operator, second.operator)}
    state = measured(state, JobResult(cpu_s=columns), 1.0)
    columns[second.operator] = np.array([np.nan], CPU_S).tobytes()
    state = measured(state, JobResult(cpu_s=columns), 2.0)
    assert dict(state.costs) == {first: pytest.approx(0.375), second: 0.5}
    assert {other: state.recovery.costs[other] for other in others} == dict.fromkeys(others, pytest.approx(0.4375))
    operators, nodes = used(state.recovery)
    assert sum(operators.values()) == pytest.approx(sum(nodes.values())) == pytest.approx(sum(state.recovery.costs.values()))
