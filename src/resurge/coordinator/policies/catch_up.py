"""Which steps lagging partitions take, and when: in the background, between two live epochs, or in one job with one."""

from dataclasses import replace

from resurge.coordinator.jobs import step_job
from resurge.coordinator.policies.submitting import admits, submitted
from resurge.coordinator.state import JobState, Turn
from resurge.protocols import recovery as transitions
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.step_choice import EARLY_SHARE, StepChoice
from resurge.protocols.step_timing import StepCost, StepTiming, latency_slack_s

MOST_STOOD_BACK = 20
"""In one recovery, so many live epochs are not waited for because the one before was late."""


def choice(state: JobState) -> StepChoice:
    """What can be done next, as far as is known now."""
    settings, rhythm, recovery = state.settings, state.rhythm, state.recovery
    cost = rhythm.cost or StepCost(rhythm.attempt_s / 2)
    unit_s = settings.interval_s * settings.headroom
    is_concurrent = settings.is_concurrent and not rhythm.progress.is_stuck
    pace, lane = rhythm.pace, state.lane
    late_s, longer_s, before_s = lane.late_s, 0.0, lane.before_s
    if lane.turn is Turn.RESTING:
        late_s, longer_s, before_s = 0.0, _over_s(state), stood_back(state)[0]
    reading_s = unit_s * state.reading_cost
    timing = StepTiming(
        settings.interval_s,
        pace.took_s,
        pace.normal_s,
        cost,
        unit_s,
        is_concurrent,
        rhythm.taken,
        late_s,
        longer_s,
        reading_s,
        before_s,
    )
    shadows = {partition: shadow.cursor for partition, shadow in state.shadows.items()}
    under_way = [running.step for running in state.background if running.step is not None]
    return StepChoice(recovery, state.buffers.coverage(recovery.graph.upstream), shadows, timing, under_way)


def stood_back(state: JobState) -> tuple[float, int]:
    """How late the last live epoch was and how much longer than normal, and how often recovery has stood back because of that.

    Where epochs take most of their interval, one that was late makes all later ones late: recovery does not stand back for ever.
    """
    lane, pace = state.lane, state.rhythm.pace
    late_s = lane.late_s + _over_s(state)
    if not state.is_catching_up:
        return 0.0, 0
    is_late = late_s > latency_slack_s(state.settings.interval_s, pace.took_s, pace.normal_s)
    return (late_s, lane.stood_back + 1) if is_late and lane.stood_back < MOST_STOOD_BACK else (0.0, lane.stood_back)


def _over_s(state: JobState) -> float:
    """How much longer than normal the last live epoch took, with what it waited for."""
    lane, pace = state.lane, state.rhythm.pace
    return max(0.0, lane.ended_s - lane.began_s - max(pace.normal_s, pace.took_s))


def comes_first(state: JobState) -> bool:
    """Whether the next live epoch waits until lagging partitions have come nearer to the head."""
    if not state.is_catching_up or state.goal.is_stopping:
        return False
    asked = choice(state)
    return asked.recovery_comes_first and asked.step_with_epoch() is None


def stepped(state: JobState, now_s: float, budget_s: float | None) -> JobState:
    """Begin what lagging partitions do next, within the time until the next live epoch is due; None is without limit.

    Background jobs that are under way are waited for where the next live epoch must not begin before them.
    """
    asked = choice(state)
    state = replace(state, lane=replace(state.lane, considered=state.recovery.revision, is_looked=True))
    background = frozenset(running.job.attempt for running in state.background)
    if background and (budget_s is None or asked.recovery_comes_first):
        # While no query is live an epoch would publish nothing; else it is late by an interval at most.
        until_s = float("inf") if budget_s is None or asked.is_idle else now_s + state.settings.interval_s
        return replace(state, lane=replace(state.lane, awaited=background, awaited_until_s=until_s))
    if asked.largest_step is None:
        # They have nothing left to take: what has met the head is live.
        return replace(state, recovery=transitions.advanced(state.recovery, {}))
    if budget_s is not None and asked.runs_in_background:
        soon = asked.final_step_before_epoch(budget_s)
        state, attempts = launched(state, now_s, asked, asked.background_steps(budget_s))
        awaited = frozenset(attempt for attempt, step in attempts.items() if step is soon)
        until_s = now_s + budget_s + 2 * asked.timing.latency_slack_s
        return replace(state, lane=replace(state.lane, awaited=awaited, awaited_until_s=until_s))
    step = None if background else asked.step_before_epoch(budget_s)
    if step is None:
        return state
    taken = replace(state.rhythm, taken=state.rhythm.taken + step.longest)
    state, attempt = state.new_attempt()
    return submitted(
        replace(state, rhythm=taken), now_s, step_job(state, attempt, step, asked.readers(step)), step, is_foreground=True
    )


def launched_beside(state: JobState, now_s: float) -> JobState:
    """Let steps begin in the background with a live epoch."""
    if not state.is_catching_up:
        return state
    asked = choice(state)
    return launched(state, now_s, asked, asked.background_steps(0.0))[0] if asked.runs_in_background else state


def launched(state: JobState, now_s: float, asked: StepChoice, steps: list[CatchUp]) -> tuple[JobState, dict[str, CatchUp]]:
    """Begin steps in the background."""
    attempts: dict[str, CatchUp] = {}
    for step in steps:
        named, attempt = state.new_attempt()
        job = step_job(state, attempt, step, asked.readers(step))
        if admits(state, job):
            attempts[attempt] = step
            rhythm = replace(state.rhythm, progress=state.rhythm.progress.begun(step, state.recovery))
            state = submitted(replace(named, rhythm=rhythm), now_s, job, step, is_foreground=False)
    return replace(state, lane=replace(state.lane, considered=state.recovery.revision)), attempts


def joined_step(state: JobState) -> tuple[JobState, CatchUp | None]:
    """The step that is taken in one job with the next live epoch; partitions that have nothing left to take are live."""
    step = None
    if state.is_catching_up:
        asked = choice(state)
        if asked.largest_step is None:
            state = replace(state, recovery=transitions.advanced(state.recovery, {}))
        step = asked.step_with_epoch()
        if step is not None and not admits(state, step_job(state, "", step)):
            step = None
    taken = 0 if step is None else step.longest
    return replace(state, rhythm=replace(state.rhythm, taken=taken)), step


def hurries(state: JobState, left_s: float) -> tuple[JobState, bool]:
    """Whether the next live epoch begins before it is due; asked once as long as nothing changes."""
    revision = state.recovery.revision
    if left_s > early_s(state) or state.lane.hurried == revision or not state.is_catching_up:
        return state, False
    state = replace(state, lane=replace(state.lane, hurried=revision))
    return state, choice(state).is_early(left_s)


def early_s(state: JobState) -> float:
    """How long before it is due a live epoch may begin."""
    return EARLY_SHARE * state.settings.interval_s
