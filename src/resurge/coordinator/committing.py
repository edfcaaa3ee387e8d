"""A job succeeded: its versions are the newest, its output is logged and published, and what it was for goes on."""

from dataclasses import replace

from resurge.coordinator import jobs, newest, recorder
from resurge.coordinator.commands import (
    Adopt,
    CatchUpCommit,
    CheckpointCommit,
    DropBuffers,
    EpochCommit,
    Forget,
    Publish,
    WriteManifest,
)
from resurge.coordinator.inputs import JobResult
from resurge.coordinator.measuring import measured
from resurge.coordinator.policies import catch_up, checkpoint, copies, migration, replaying
from resurge.coordinator.state import Activity, JobState, Pending, Publication, RunningJob, Saving, Taken, Turn
from resurge.errors import ProtocolError
from resurge.model.names import Partition
from resurge.model.work import LAST_EPOCH, Job, Role
from resurge.protocols import recovery as transitions
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.epoch import is_full, observed
from resurge.protocols.recovery import RecoveryState
from resurge.protocols.step_timing import Progress


def committed(state: JobState, running: RunningJob, result: JobResult, took_s: float, now_s: float) -> JobState:
    """Commit whatever the job was for: lagging partitions first, then the live epoch, then a checkpoint."""
    job, step = running.job, running.step
    state = _adopted(copies.demoted(state, job) if job.leaves else state, job, result)
    if job.is_shipping_only:
        return migration.shipped(replace(state, failures=0), job, result, now_s)
    if step is None and job.is_replay:
        return replaying.replayed(replace(state, failures=0), job)
    state = copies.proven(state, job)
    if job.leaves:
        state = migration.switched(state, job, result, now_s)
    rhythm = replace(state.rhythm, attempt_s=took_s) if job.epochs else state.rhythm
    state = replace(state, rhythm=rhythm, failures=0)
    if step is not None:
        state = _catch_up_committed(state, running, step, result, took_s, now_s)
    if job.live_epoch is not None:
        state = _epoch_committed(state, running, result, took_s, now_s)
    if job.is_checkpoint:
        state = _checkpoint_taken(state, job, now_s)
    if state.taken is not None and state.taken.attempt == result.durable:
        state = _checkpoint_durable(state, state.taken)
    return state


def _adopted(state: JobState, job: Job, result: JobResult) -> JobState:
    state = replace(
        state,
        versions=newest.adopted(state.versions, job, state.recovery.live),
        shadows=jobs.shadows_after(state.shadows, job),
        buffers=state.buffers.keep(job, result.buffered_bytes),
    )
    state, number = state.numbered()
    return _within_limit(state.sending(Adopt(number, job.attempt)))


def _within_limit(state: JobState) -> JobState:
    """Drop the oldest buffers of nodes that hold too much."""
    in_use = [pair for running in state.background for pair in running.job.replays]
    dropped = state.buffers.excess(state.settings.buffer_limit_bytes, in_use)
    for buffered in dropped:
        state, number = state.numbered()
        state = state.sending(DropBuffers(number, buffered.attempt, buffered.node))
    return replace(state, buffers=state.buffers.without(dropped))


def _catch_up_committed(
    state: JobState, running: RunningJob, step: CatchUp, result: JobResult, took_s: float, now_s: float
) -> JobState:
    """Log and publish what a step made; what has met the head is live."""
    job, before = running.job, state.recovery
    is_joined = job.live_epoch is not None
    if not is_joined:
        asked = catch_up.choice(state)
        cost = asked.timing.cost.after(took_s, step.longest, asked.work_s(step))
        state = replace(state, rhythm=replace(state.rhythm, cost=cost))
    cursors, last = step.cursors(), step.epochs[-1]
    below = job.live_epoch if job.live_epoch is not None else LAST_EPOCH
    after = transitions.advanced(before, cursors)
    state = replace(state, recovery=after, sources_published=max(state.sources_published, last))
    if not state.is_catching_up:
        state = replace(state, shadows={}, rhythm=replace(state.rhythm, progress=Progress()))
    arrivals_s = recorder.arrivals_s(state, before, after)
    replays = result.replayed_buffers or len(step.buffered)
    publication = Publication(result, took_s, arrivals_s, step=step, is_joined=is_joined, replays=replays)
    if not any(epoch < below for epoch in result.published_epochs):
        return recorder.published(state, publication, now_s)
    state = state.appending(CatchUpCommit(job.attempt, cursors, below))
    state, number = state.numbered(publication)
    return state.sending(Publish(number, job.attempt, step.epochs[0], min(last, below - 1)))


def _epoch_committed(state: JobState, running: RunningJob, result: JobResult, took_s: float, now_s: float) -> JobState:
    """Log and publish a live epoch; all that are live have taken it."""
    job, before, pending = running.job, state.recovery, state.pending
    assert job.live_epoch is not None and pending is not None
    epoch = job.live_epoch
    absent = _absent(before)
    _check_taken(before, job, epoch)
    after = transitions.epoch_done(before, epoch)
    is_known = state.settings.saves_partially and absent == state.absent
    state = state.appending(EpochCommit(epoch, job.attempt, None if is_known else absent))
    state = replace(state, recovery=after, pending=None, sources_published=epoch, absent=absent)
    arrivals_s = recorder.arrivals_s(state, before, after)
    publication = Publication(result, now_s - pending.since_s, arrivals_s, epoch=epoch, arrival_s=pending.arrival_s)
    state, number = state.numbered(publication)
    state = state.sending(Publish(number, job.attempt, epoch, epoch))
    state = replace(state, rows_read={**state.rows_read, epoch: result.epoch_rows})
    state = replace(state, lane=replace(state.lane, ended_s=now_s))
    return _rested(_measured(state, running, result, took_s), running, result, pending)


def _measured(state: JobState, running: RunningJob, result: JobResult, took_s: float) -> JobState:
    """Learn what epochs and partitions cost; one that also carried lagging partitions tells little, unless it was too long even so."""
    interval_s, is_usual = state.settings.interval_s, running.step is None
    if is_usual or took_s > interval_s:
        pace = observed(state.rhythm.pace, result.rows_read, took_s, interval_s, is_whole=state.recovery.all_live)
        state = replace(state, rhythm=replace(state.rhythm, pace=pace))
    return measured(state, result, max(interval_s, took_s)) if is_usual else state


def _rested(state: JobState, running: RunningJob, result: JobResult, pending: Pending) -> JobState:
    """The next epoch is due after its interval; at once if this one took all that it might."""
    goal = state.goal
    # What others took of the past in the same job says nothing of what is waiting.
    is_all = pending.is_capped or is_full(result.rows_read, state.rhythm.row_limit)
    is_more = is_all and running.step is None
    rest_s = 0.0 if is_more or goal.until_idle else state.settings.interval_s
    is_next = goal.activity is Activity.DRAINING and not pending.is_drain
    lane = replace(state.lane, turn=Turn.DUE if is_next else Turn.RESTING, rest_s=rest_s, is_looked=False)
    if goal.activity is Activity.RUNNING and goal.epochs_left is not None:
        goal = replace(goal, epochs_left=goal.epochs_left - 1)
    return replace(state, lane=lane, goal=goal)


def _absent(recovery: RecoveryState) -> tuple[Partition, ...]:
    """The partitions that are not live."""
    return (
        () if recovery.all_live else tuple(partition for partition in recovery.graph.upstream if partition not in recovery.live)
    )


def _check_taken(recovery: RecoveryState, job: Job, epoch: int) -> None:
    """Whoever is live takes every epoch: were one counted that was not in the job, its output would be missing for ever."""
    if job.steady is not None and job.steady.assignment.partitions is recovery.live and job.steady.cursor < epoch:
        return
    taken = {task.partition for task in job.tasks if task.replica.role is Role.PRIMARY and task.takes(epoch)}
    if taken != recovery.live:
        other = min(str(partition) for partition in taken ^ recovery.live)
        raise ProtocolError(f"epoch {epoch} was taken by {len(taken)} partitions, but {len(recovery.live)} are live, see {other}")


def _checkpoint_taken(state: JobState, job: Job, now_s: float) -> JobState:
    """The states that a job leaves on its nodes are a checkpoint, which is written to the durable store while epochs go on."""
    recovery = state.recovery
    if not recovery.all_live and not (recovery.live and state.settings.saves_partially):
        return state
    taken = Taken(recovery.head, job.attempt, now_s, _absent(recovery), job.task_nodes)
    # Its record comes after those of later epochs and lets the records before them go, so that the next one says who is absent.
    return replace(state, taken=taken, absent=None, rhythm=replace(state.rhythm, checkpoint_s=now_s))


def _checkpoint_durable(state: JobState, taken: Taken) -> JobState:
    """Write the manifest and log it, after the output of its epoch; then nothing before the oldest one in use is needed."""
    recovery, absent = state.recovery, taken.absent
    after = transitions.checkpointed(recovery, taken.epoch, checkpoint.saved_partitions(state, taken))
    first, is_whole = after.cuts.first, not absent
    state, number = state.numbered()
    state = state.sending(WriteManifest(number, taken.epoch, taken.attempt, absent))
    saving = Saving(taken.epoch, taken.since_s, is_whole and recovery.is_buffering, len(absent), first if absent else None)
    state = state.appending(CheckpointCommit(taken.epoch, absent), saving)
    state, number = state.numbered()
    # What those that are not live were sent is kept for them.
    through = (taken.epoch if state.settings.always_buffers else LAST_EPOCH) if is_whole else None
    state = state.sending(Forget(number, taken.epoch, first, through))
    arrivals_s = {known: at_s for known, at_s in state.arrivals_s.items() if known > first}
    rows_read = {known: rows for known, rows in state.rows_read.items() if known > first}
    buffers = state.buffers if through is None else state.buffers.after(through)
    return replace(state, recovery=after, buffers=buffers, arrivals_s=arrivals_s, rows_read=rows_read, absent=absent, taken=None)
