"""The next live epoch: when it begins, what it reads, and what is done first."""

from dataclasses import replace

from resurge.coordinator.commands import EpochPlan, Poll
from resurge.coordinator.inputs import InputReady
from resurge.coordinator.jobs import awaiting_job, live_job
from resurge.coordinator.policies import catch_up, checkpoint, migration
from resurge.coordinator.policies.submitting import submitted
from resurge.coordinator.state import Activity, Goal, JobState, Pending, Turn
from resurge.protocols.epoch import idle_wait_s, row_limit, wait_s


def rested(state: JobState, now_s: float) -> JobState:
    """Between two live epochs: lagging partitions take steps; then the next epoch is due."""
    lane = state.lane
    left_s = wait_s(lane.began_s, now_s, lane.rest_s)
    is_news = lane.considered != state.recovery.revision
    if state.is_catching_up and is_news and (left_s > 0 or not lane.is_looked):
        return catch_up.stepped(state, now_s, left_s)
    state, is_early = catch_up.hurries(state, left_s)
    if left_s <= 0 or is_early:
        due_s = lane.began_s + lane.rest_s
        late_s = max(0.0, now_s - due_s) if lane.began_s > float("-inf") else 0.0
        before_s, stood_back = catch_up.stood_back(state)
        lane = replace(state.lane, turn=Turn.DUE, began_s=now_s, late_s=late_s, before_s=before_s, stood_back=stood_back)
        return replace(state, lane=replace(lane, is_looked=True))
    return state


def due(state: JobState, now_s: float) -> JobState:
    """Begin the next live epoch, or first what it waits for."""
    if catch_up.comes_first(state) and state.lane.considered != state.recovery.revision:
        return catch_up.stepped(state, now_s, 0.0)
    state = catch_up.launched_beside(state, now_s)
    if state.pending is not None:
        return _submitted(state, now_s)
    configured = state.settings.max_rows_per_epoch
    limit = row_limit(state.rhythm.pace, configured) if state.settings.back_pressure else configured
    lane = replace(state.lane, turn=Turn.POLLING)
    state = replace(state, lane=lane, rhythm=replace(state.rhythm, row_limit=limit))
    return state.sending(Poll(state.recovery.head + 1, limit, state.goal.activity is Activity.DRAINING))


def input_ready(state: JobState, ready: InputReady, now_s: float) -> JobState:
    """Log what the next epoch reads; or, where there is nothing, let lagging partitions catch up without a limit."""
    goal = state.goal
    is_drain = goal.activity is Activity.DRAINING
    if not ready.is_empty or is_drain:
        pending = Pending(ready.epoch, ready.arrival_s, is_drain, now_s, ready.is_capped)
        arrivals_s = {**state.arrivals_s, ready.epoch: ready.arrival_s}
        state = replace(state, pending=pending, arrivals_s=arrivals_s, lane=replace(state.lane, turn=Turn.DUE))
        return state.appending(EpochPlan(ready.epoch, is_drain))
    state = state.emitting(*state.emitted.committed(now_s, state.recovery))
    idle_s = idle_wait_s(state.lane.rest_s, state.settings.idle_s)
    rest_s = max(idle_s, 0.0 if goal.until_idle else state.settings.interval_s)
    lane = replace(state.lane, turn=Turn.RESTING, rest_s=rest_s, is_looked=True)
    state = replace(state, lane=lane)
    if goal.activity is Activity.STEPPING:
        return replace(state, goal=Goal())
    if state.is_catching_up:
        state = catch_up.stepped(state, now_s, None)
        is_busy = state.lane.foreground is not None or state.lane.awaited
        return replace(state, lane=replace(state.lane, rest_s=0.0)) if is_busy and goal.until_idle else state
    if goal.until_idle:
        return replace(state, goal=replace(goal, activity=Activity.RECOVERING))
    return _looked(state, now_s)


def _looked(state: JobState, now_s: float) -> JobState:
    """Without an epoch that would tell, ask whether the checkpoint that is being written is durable."""
    if state.taken is None:
        return state
    named, attempt = state.new_attempt()
    return submitted(named, now_s, awaiting_job(state.taken, state, attempt, looks=True), is_foreground=True)


def _submitted(state: JobState, now_s: float) -> JobState:
    """The logged epoch, with the partitions that are live, and those that a step brings to the head in the same job."""
    assert state.pending is not None
    epoch = state.pending.epoch
    if state.rhythm.checkpoint_s is None:
        state = replace(state, rhythm=replace(state.rhythm, checkpoint_s=now_s))
    state, step = catch_up.joined_step(state)
    is_checkpoint = checkpoint.is_wanted(state, epoch, now_s)
    if is_checkpoint and step is not None and not checkpoint.is_possible_with(state.recovery, step):
        state, step = replace(state, rhythm=replace(state.rhythm, taken=0)), None
    # A checkpoint saves what is durable nowhere; a state that has just come does not know what is.
    state, moves = (state, {}) if step is not None or is_checkpoint else migration.switching(state, now_s)
    state, attempt = state.new_attempt()
    job = live_job(state, attempt, epoch, step, is_checkpoint=is_checkpoint, moves=moves)
    return submitted(state, now_s, job, step, is_foreground=True)
