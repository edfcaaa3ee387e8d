"""What the coordinator answers to single inputs."""

from dataclasses import replace

import pytest

from resurge.coordinator.commands import Append, Cancel, CheckpointCommit, Command, Discard, EpochCommit, Plan, Poll, Publish, Run
from resurge.coordinator.handle import handle
from resurge.coordinator.inputs import (
    ENGINE_FAILED,
    CommandFailed,
    Done,
    Failure,
    Input,
    InputReady,
    JobEnded,
    JobResult,
    Member,
    NodesChanged,
    Planned,
    Requested,
    RunEpochs,
    SaveAll,
    Start,
    Tick,
)
from resurge.coordinator.scheduling import Strategy, answered
from resurge.coordinator.starting import Found, first_state
from resurge.coordinator.state import Description, JobState, Settings
from resurge.errors import ProtocolError
from resurge.model.names import NodeId
from tests.unit.protocols.test_recovery import whole

NODES = {NodeId(f"n{number}"): Member(1.0) for number in range(3)}


def first() -> JobState:
    """A new job on three nodes."""
    graph = whole().graph
    description = Description("job", "test", 1, {}, 1, {})
    return first_state(Settings(), description, Strategy("eager"), graph, NODES, Found())


def told(state: JobState, *events: Input, now_s: float = 1.0) -> tuple[JobState, list[Command]]:
    """After some inputs, planners and polls being answered at once."""
    sent: list[Command] = []
    waiting = list(events)
    while waiting:
        state, commands = handle(state, waiting.pop(0), now_s)
        sent += commands
        for command in commands:
            if isinstance(command, Plan):
                answer = answered(command.recovery, command.strategy)
                placement = {str(partition): node for partition, node in answer.placement.items()}
                waiting.append(Planned(command.number, placement, list(answer.queries)))
            elif isinstance(command, Poll):
                waiting.append(InputReady(command.epoch, is_empty=False))
    return state, sent


def running() -> tuple[JobState, Run]:
    """A job whose first epoch runs."""
    state, sent = told(first(), Requested(Start()), Requested(RunEpochs()))
    [run] = [command for command in sent if isinstance(command, Run)]
    return state, run


def test_an_epoch_is_logged_before_it_runs_and_committed_before_it_is_published() -> None:
    """In the order in which commands are carried out."""
    state, sent = told(first(), Requested(Start()), Requested(RunEpochs()))
    kinds = [type(command).__name__ for command in sent]
    assert kinds.index("Append") < kinds.index("Run")
    attempt = next(command.job.attempt for command in sent if isinstance(command, Run))
    state, sent = told(state, JobEnded(attempt, JobResult(published_epochs=[1], rows_read=1)))
    commit = next(n for n, command in enumerate(sent) if isinstance(command, Append) and isinstance(command.record, EpochCommit))
    publish = next(n for n, command in enumerate(sent) if isinstance(command, Publish))
    assert commit < publish
    assert state.recovery.head == 1


def test_who_is_absent_is_as_the_newest_record_has_it() -> None:
    """Also a checkpoint's: a commit after it that says nothing means those who are not in the checkpoint."""
    state, run = running()
    everyone = tuple(state.recovery.graph.upstream)
    state = replace(state, settings=replace(state.settings, saves_partially=True))
    state, sent = told(state, Requested(RunEpochs(1)), JobEnded(run.job.attempt, JobResult(published_epochs=[1], rows_read=1)))
    assert next(c.record.absent for c in sent if isinstance(c, Append) and isinstance(c.record, EpochCommit)) == ()
    for number in sorted(state.open_commands):
        state, _ = told(state, Done(number))
    state, sent = told(replace(state, absent=everyone[:1]), Requested(SaveAll()))
    [saving] = [command.job.attempt for command in sent if isinstance(command, Run)]
    state, sent = told(state, JobEnded(saving, JobResult(durable=saving)))
    assert CheckpointCommit(1) in [command.record for command in sent if isinstance(command, Append)]
    assert state.absent == ()


def finished(state: JobState, run: Run, durable: str | None = None) -> tuple[JobState, Run, list[Command]]:
    """After the live epoch that runs, and all answers: the next one that runs."""
    epoch = run.job.live_epoch
    assert epoch is not None
    next_s = 1.0 + 10 * epoch
    now_s = next_s - 9.5
    result = JobResult(published_epochs=[epoch], rows_read=1, durable=durable)
    state, sent = told(state, JobEnded(run.job.attempt, result), now_s=now_s)
    for number in sorted(state.open_commands):
        state, _ = told(state, Done(number), now_s=now_s)
    state, more = told(state, Tick(), now_s=next_s)
    [following] = [command for command in more if isinstance(command, Run)]
    return state, following, sent


def taken() -> tuple[JobState, Run, str]:
    """A job of which the checkpoint of the first epoch is being written, and the second epoch runs."""
    state, run = running()
    state = replace(state, settings=replace(state.settings, checkpoint_interval=2, saves_partially=True))
    state, run, _ = finished(state, run)
    assert run.job.is_checkpoint and run.job.awaits is None
    attempt = run.job.attempt
    state, run, sent = finished(state, run)
    assert not logged(sent)
    return state, run, attempt


def test_a_checkpoint_can_be_due_by_time() -> None:
    """Once the last one was taken so long ago, however many epochs there are and however old their rows."""
    state, run = running()
    settings = replace(state.settings, checkpoint_interval=1, checkpoint_interval_s=25.0, saves_partially=True)
    state, taken_at = replace(state, settings=settings), []
    for _ in range(7):
        state, run, _ = finished(state, run, durable=state.taken.attempt if state.taken else None)
        if run.job.is_checkpoint:
            taken_at.append(run.job.live_epoch)
    # An epoch begins every ten seconds.
    assert taken_at == [4, 7]


def logged(sent: list[Command]) -> list[int]:
    """The checkpoints that are logged, by epoch."""
    records = [command.record for command in sent if isinstance(command, Append)]
    return [record.epoch for record in records if isinstance(record, CheckpointCommit)]


def test_a_checkpoint_is_logged_when_it_is_durable_and_counts_from_then_on() -> None:
    """Until then partitions restore from the one before, no other is taken, and the next commit says who is absent."""
    state, run, attempt = taken()
    assert state.recovery.checkpoint == 0 and state.absent is None
    for _ in range(3):
        assert run.job.awaits == attempt and not run.job.is_checkpoint
        state, run, sent = finished(state, run)
        assert not logged(sent) and state.arrivals_s.keys() >= {1, 2}
    state, run, sent = finished(state, run, durable=attempt)
    assert logged(sent) == [2] and state.recovery.checkpoint == 2 and state.recovery.head == 6
    assert not state.arrivals_s.keys() & {1, 2}
    assert run.job.is_checkpoint and run.job.awaits is None


def test_a_checkpoint_is_given_up_if_a_node_is_lost_before_it_is_logged() -> None:
    """What was lost is down at the older one, which stays; the next live epoch takes another one."""
    state, run, attempt = taken()
    state, sent = told(state, NodesChanged([sorted(run.job.nodes)[0]]))
    assert state.taken is None
    assert all(known.cursor == 0 for known in state.recovery.statuses.values() if known.cursor < state.recovery.head)
    again = next(command for command in reversed(sent) if isinstance(command, Run))
    assert again.job.is_checkpoint == (again.job.live_epoch is not None) and again.job.awaits is None
    _, sent = told(state, JobEnded(run.job.attempt, JobResult(durable=attempt)))
    assert not logged(sent)


def test_a_request_to_save_waits_for_the_checkpoint_that_is_being_written_and_then_saves_the_head() -> None:
    """A driver that ends leaves everything durable."""
    state, run, attempt = taken()
    state, _ = told(state, Requested(SaveAll()))
    state, sent = told(state, JobEnded(run.job.attempt, JobResult(published_epochs=[3], rows_read=1)))
    [waiting] = [command.job for command in sent if isinstance(command, Run)]
    assert (waiting.awaits, waiting.epochs, waiting.tasks, waiting.looks) == (attempt, (), (), False)
    state, sent = told(state, JobEnded(waiting.attempt, JobResult(durable=attempt)))
    [saving] = [command.job for command in sent if isinstance(command, Run)]
    assert logged(sent) == [2] and saving.is_checkpoint
    state, sent = told(state, JobEnded(saving.attempt, JobResult(durable=saving.attempt)))
    assert logged(sent) == [3] and state.recovery.checkpoint == 3


def test_without_input_the_driver_looks_whether_the_checkpoint_is_durable() -> None:
    """No epoch comes that would tell."""
    state, run, attempt = taken()
    state, sent = handle(state, JobEnded(run.job.attempt, JobResult(published_epochs=[3], rows_read=1)), 2.0)
    state, sent = handle(state, Tick(), 50.0)
    [poll] = [command for command in sent if isinstance(command, Poll)]
    state, sent = handle(state, InputReady(poll.epoch, is_empty=True), 50.0)
    [looking] = [command.job for command in sent if isinstance(command, Run)]
    assert looking.looks and looking.awaits == attempt
    state, sent = handle(state, JobEnded(looking.attempt, JobResult(durable=attempt)), 50.1)
    assert logged(list(sent)) == [2]


def test_a_loss_voids_the_job_at_once_and_the_epoch_is_tried_again_under_another_name() -> None:
    """Nothing waits for the end of a job that cannot succeed."""
    state, run = running()
    lost = sorted(run.job.nodes)[0]
    state, sent = told(state, NodesChanged([lost]))
    assert Cancel(run.job.attempt) in sent
    [again] = [command.job for command in sent if isinstance(command, Run)]
    assert again.attempt != run.job.attempt
    assert again.live_epoch == run.job.live_epoch
    assert lost not in again.nodes


def test_the_late_result_of_a_void_job_is_discarded() -> None:
    """Whatever it brings, it changes nothing."""
    state, run = running()
    state, _ = told(state, NodesChanged([sorted(run.job.nodes)[0]]))
    after, sent = told(state, JobEnded(run.job.attempt, JobResult(published_epochs=[1])))
    assert [type(command) for command in sent] == [Discard]
    assert after.recovery == state.recovery


def test_a_node_that_joins_under_a_known_name_has_lost_everything() -> None:
    """Its partitions are down, and the job that needed their state is void."""
    state, run = running()
    known = sorted(run.job.nodes)[0]
    state, sent = told(state, NodesChanged([], {known: Member(1.0)}))
    assert Cancel(run.job.attempt) in sent
    assert known in state.recovery.capacity


def test_a_job_at_which_the_engine_fails_is_tried_again_after_a_pause_but_not_for_ever() -> None:
    """Each failure in a row waits longer; then the job ends with what the engine said."""
    state, run = running()
    failure, now_s, attempts = Failure(ENGINE_FAILED, "Spark could not run it"), 1.0, 0
    while state.failure is None:
        attempts += 1
        state, sent = told(state, JobEnded(run.job.attempt, failure=failure), now_s=now_s)
        assert not [command for command in sent if isinstance(command, Run)]
        if state.failure is None:
            assert state.wake_s is not None
            now_s = state.wake_s
            state, sent = told(state, Requested(RunEpochs()), now_s=now_s)
            [run] = [command for command in sent if isinstance(command, Run)]
    assert state.failure == failure
    assert attempts > 3


def test_a_failure_of_the_users_code_is_not_tried_again() -> None:
    """It would fail again."""
    state, run = running()
    state, _ = told(state, JobEnded(run.job.attempt, failure=Failure("OperatorError", "division by zero")))
    assert state.failure == Failure("OperatorError", "division by zero")


def test_the_planner_is_asked_after_the_live_epoch_that_runs() -> None:
    """Whoever were let in while an epoch runs would be counted among those who took it, and its output would be missing."""
    strategy = Strategy("blocking")
    state = first_state(Settings(), Description("job", "test", 1, {}, 1, {}), strategy, whole().graph, NODES, Found())
    state, _ = told(state, Requested(Start()), Requested(RunEpochs()))
    node = next(known.node for partition, known in state.recovery.statuses.items() if partition.operator == "c")
    assert node is not None
    state, sent = told(state, NodesChanged([node]))
    [run] = [command for command in sent if isinstance(command, Run)]
    state, sent = told(state, NodesChanged([], {NodeId("new"): Member(1.0)}))
    assert not [command for command in sent if isinstance(command, Plan)]
    state, sent = told(state, JobEnded(run.job.attempt, JobResult(published_epochs=[1], rows_read=1)))
    assert [command for command in sent if isinstance(command, Plan)]


def test_an_epoch_that_others_took_than_those_who_are_live_is_never_committed() -> None:
    """A partition that is counted and was not in the job would lose its output without anybody noticing."""
    state, run = running()
    fewer = replace(run.job, tasks=run.job.tasks[:-1])
    state = replace(state, jobs={run.job.attempt: replace(state.jobs[run.job.attempt], job=fewer)})
    with pytest.raises(ProtocolError, match="was taken by"):
        told(state, JobEnded(run.job.attempt, JobResult(published_epochs=[1], rows_read=1)))


def test_sources_that_failed_are_asked_again_when_somebody_asks_for_it() -> None:
    """The driver ends what it does, and does not wait for an answer that never comes."""
    state, _ = told(first(), Requested(Start()))
    state, sent = handle(state, Requested(RunEpochs()), 1.0)
    assert [command for command in sent if isinstance(command, Poll)]
    state, sent = handle(state, CommandFailed(0, Failure("SourceError", "no such file")), 1.0)
    assert (state.is_over, sent) == (True, ())
    state, sent = handle(state, Requested(RunEpochs()), 2.0)
    assert [command for command in sent if isinstance(command, Poll)]
    assert state.failure is None


def test_sources_that_had_nothing_are_asked_again_soon_and_then_less_and_less_often() -> None:
    """Without an interval a row waits for milliseconds, and an idle job asks ten times a second."""
    state, waits_s = replace(first(), settings=Settings(interval_s=0.0)), []
    now_s = 1.0
    waiting: list[Input] = [Requested(Start()), Requested(RunEpochs())]
    while len(waits_s) < 7:
        state, sent = handle(state, waiting.pop(0), now_s)
        for command in sent:
            if isinstance(command, Plan):
                answer = answered(command.recovery, command.strategy)
                waiting.append(
                    Planned(command.number, {str(p): node for p, node in answer.placement.items()}, list(answer.queries))
                )
            elif isinstance(command, Poll):
                waiting.append(InputReady(command.epoch, is_empty=True))
        if not waiting:
            assert state.wake_s is not None
            waits_s.append(round(state.wake_s - now_s, 3))
            now_s = state.wake_s
            waiting.append(Tick())
    assert waits_s == [0.005, 0.01, 0.02, 0.04, 0.08, 0.1, 0.1]
