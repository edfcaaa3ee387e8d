"""`handle`: absorb one fact, then decide what is done next. No clock, no threads, no input or output."""

from collections.abc import Callable
from dataclasses import replace

from resurge.coordinator import absorbing, recorder
from resurge.coordinator.commands import Command
from resurge.coordinator.inputs import (
    CommandFailed,
    CopiesPlanned,
    Failure,
    Input,
    InputReady,
    JobEnded,
    MovesPlanned,
    NodesChanged,
    Planned,
    Requested,
    Tick,
)
from resurge.coordinator.jobs import awaiting_job, saving_job
from resurge.coordinator.policies import catch_up, checkpoint, copies, live, migration, scale
from resurge.coordinator.policies.submitting import submitted
from resurge.coordinator.state import Activity, Goal, JobState, Turn
from resurge.errors import ProtocolError

MOST_MOVES = 1000


def handle(state: JobState, event: Input, now_s: float) -> tuple[JobState, tuple[Command, ...]]:
    """Absorb one fact, then do everything that can be done now; what must be done outside is returned as commands."""
    if isinstance(event, Requested) and state.failure is not None:
        # Whoever asks for something after a failure has fixed its cause: try again.
        turn = Turn.DUE if state.lane.turn is Turn.POLLING else state.lane.turn
        state = replace(state, failure=None, failures=0, lane=replace(state.lane, turn=turn))
    if state.failure is None:
        state = _absorbed(state, event, now_s)
    for _ in range(MOST_MOVES):
        moved = state if state.failure is not None else _moved(state, now_s)
        if moved is state:
            return replace(state, outbox=(), wake_s=_wake_s(state, now_s)), state.outbox
        state = moved
    raise ProtocolError(f"after {type(event).__name__} the coordinator moved {MOST_MOVES} times; expected it to come to rest")


def _absorbed(state: JobState, event: Input, now_s: float) -> JobState:
    if isinstance(event, Tick):
        return state
    if isinstance(event, NodesChanged):
        return absorbing.nodes_changed(state, event, now_s)
    if isinstance(event, JobEnded):
        return absorbing.job_ended(state, event, now_s)
    if isinstance(event, InputReady):
        return absorbing.input_ready(state, event, now_s)
    if isinstance(event, Planned):
        return absorbing.answered(state, event, now_s)
    if isinstance(event, MovesPlanned):
        return migration.planned(state, event, now_s)
    if isinstance(event, CopiesPlanned):
        return copies.planned(state, event, now_s)
    if isinstance(event, Requested):
        return absorbing.requested(state, event, now_s)
    if isinstance(event, CommandFailed):
        return absorbing.command_failed(state, event)
    return absorbing.answered_command(state, event, now_s)


def _moved(state: JobState, now_s: float) -> JobState:
    """The next thing that is done; the same state if there is nothing to do now."""
    lane = state.lane
    if lane.foreground is not None:
        # Whoever comes back while a live epoch runs is not in it: the planner is asked afterwards.
        return state
    state = absorbing.asked(state)
    if lane.turn is Turn.POLLING or state.question.number is not None:
        return state
    if state.ended:
        first, *others = state.ended
        return absorbing.collected(replace(state, ended=tuple(others)), first, now_s)
    if state.goal.activity is Activity.READY:
        return state
    if not state.recovery.capacity:
        return _without_nodes(state, now_s)
    if now_s < lane.not_before_s or (lane.awaited and now_s < lane.awaited_until_s):
        return state
    if lane.awaited:
        state = replace(state, lane=replace(lane, awaited=frozenset()))
    if state.goal.activity in _MOVING_ACTIVITIES:
        scaled = scale.proposed(state, now_s)
        moving = migration.proposed(state, now_s) if scaled is state else scaled
        moving = copies.proposed(state, now_s) if moving is state else moving
        if moving is not state:
            return moving
    elif state.migration is not None and state.migration.is_paused:
        # Whoever waits until everything is live waits for it.
        moving = migration.proposed(state, now_s)
        if moving is not state:
            return moving
    return _ACTIVITIES[state.goal.activity](state, now_s)


def _without_nodes(state: JobState, now_s: float) -> JobState:
    """Losing all nodes keeps the driver waiting, not dead; unless it was asked to stop."""
    if state.goal.is_stopping:
        message = "there is no node to run on and the job was asked to stop; run again when there are nodes"
        return replace(state, failure=Failure("JobError", message))
    if state.lane.has_reported_waiting:
        return state
    return recorder.waiting(replace(state, lane=replace(state.lane, has_reported_waiting=True)), now_s)


# What the user asked for, activity by activity


def _start(state: JobState, now_s: float) -> JobState:
    """Catch up until something is live; then the logged epoch that was not committed."""
    if state.is_catching_up and not state.recovery.live:
        return _catch_up(state, now_s)
    if state.pending is not None:
        return live.due(state, now_s)
    return replace(state, goal=replace(state.goal, activity=Activity.READY))


def _catch_up(state: JobState, now_s: float) -> JobState:
    if state.lane.considered == state.recovery.revision:
        return state
    return catch_up.stepped(state, now_s, None)


def _run(state: JobState, now_s: float) -> JobState:
    goal = state.goal
    if goal.is_stopping or goal.epochs_left == 0:
        is_more = not goal.is_stopping and (goal.until_idle or goal.drains)
        return replace(state, goal=replace(goal, activity=Activity.RECOVERING) if is_more else _ready(goal))
    return live.due(state, now_s) if state.lane.turn is Turn.DUE else live.rested(state, now_s)


def _recover(state: JobState, now_s: float) -> JobState:
    """Until everything is live; then, if that was asked for, an epoch that closes all windows."""
    goal = state.goal
    if state.recovery.all_live or goal.is_stopping:
        if goal.drains and not goal.is_stopping:
            lane = replace(state.lane, turn=Turn.DUE, began_s=now_s)
            return replace(state, goal=replace(goal, activity=Activity.DRAINING), lane=lane)
        return replace(state, goal=_ready(goal))
    return _catch_up(state, now_s) if state.is_catching_up else state


def _one_epoch(state: JobState, now_s: float) -> JobState:
    if state.goal.is_stopping:
        return replace(state, goal=_ready(state.goal))
    if state.lane.turn is Turn.RESTING:
        is_drain = state.goal.activity is Activity.DRAINING
        return replace(
            state, goal=replace(state.goal, activity=Activity.RECOVERING, drains=False) if is_drain else _ready(state.goal)
        )
    return live.due(state, now_s)


def _save(state: JobState, now_s: float) -> JobState:
    """A checkpoint, if there is something to save; first the one that is being written."""
    if state.taken is not None:
        named, attempt = state.new_attempt()
        return submitted(named, now_s, awaiting_job(state.taken, state, attempt), is_foreground=True)
    if not checkpoint.is_anything_new(state):
        return replace(state, goal=_ready(state.goal))
    state, attempt = state.new_attempt()
    return submitted(state, now_s, saving_job(state, attempt), is_foreground=True)


def _ready(goal: Goal) -> Goal:
    return Goal(is_stopping=goal.is_stopping)


_ACTIVITIES: dict[Activity, Callable[[JobState, float], JobState]] = {
    Activity.STARTING: _start,
    Activity.RUNNING: _run,
    Activity.STEPPING: _one_epoch,
    Activity.DRAINING: _one_epoch,
    Activity.RECOVERING: _recover,
    Activity.SAVING: _save,
}


_MOVING_ACTIVITIES = (Activity.RUNNING, Activity.STEPPING)
"""When state may move: while live epochs come, one of which lets it switch."""


def _wake_s(state: JobState, now_s: float) -> float | None:
    """When time alone changes something, if it does."""
    lane = state.lane
    if state.failure is not None or lane.foreground is not None or lane.turn is Turn.POLLING:
        return None
    if state.goal.activity is Activity.READY or not state.recovery.capacity or state.question.number is not None:
        return None
    times_s = [lane.not_before_s]
    if lane.awaited:
        times_s.append(lane.awaited_until_s)
    elif state.goal.activity is Activity.RUNNING and lane.turn is Turn.RESTING:
        due_s = lane.began_s + lane.rest_s
        times_s.append(due_s)
        if state.is_catching_up and lane.hurried != state.recovery.revision:
            times_s.append(due_s - catch_up.early_s(state))
    later = [at_s for at_s in times_s if now_s < at_s < float("inf")]
    return min(later, default=None)
