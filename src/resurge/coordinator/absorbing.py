"""What an input changes, before anything new is decided."""

from collections.abc import Iterable
from dataclasses import replace

from resurge.coordinator import draining, recorder
from resurge.coordinator.commands import Cancel, Discard, Plan
from resurge.coordinator.committing import committed
from resurge.coordinator.inputs import (
    COPY_DAMAGED,
    ENGINE_FAILED,
    MISPLACED,
    Appended,
    CommandFailed,
    Done,
    Failure,
    FinishRecovery,
    InputReady,
    JobEnded,
    NodesChanged,
    Planned,
    Published,
    Requested,
    RunEpochs,
    SaveAll,
    Start,
    Stop,
    TakeEpoch,
)
from resurge.coordinator.job_events import planned as planned_events
from resurge.coordinator.jobs import is_void
from resurge.coordinator.measuring import priced
from resurge.coordinator.policies import checkpoint, copies, giving_up, live, migration, scale
from resurge.coordinator.scheduling import after_loss, is_same_question, moved
from resurge.coordinator.state import Activity, Ended, Goal, JobState, Publication, Question, Saving, Turn
from resurge.errors import ProtocolError
from resurge.model.names import NodeId, Partition
from resurge.model.requests import Balance, Drain, Move, Scale
from resurge.protocols import recovery as transitions
from resurge.protocols import retrying
from resurge.protocols.recovery import Phase


def nodes_changed(state: JobState, changed: NodesChanged, now_s: float) -> JobState:
    """Nodes that are gone take their partitions down and void their jobs; nodes that are there add capacity."""
    # A node that joins under the name of one that is known has forgotten everything: the known one is lost.
    again = [node for node in changed.joined if node in state.recovery.capacity]
    state = lost(state, (*changed.lost, *again), now_s)
    if not changed.joined:
        return state
    before = state.recovery
    recovery = transitions.nodes_joined(before, {node: member.capacity for node, member in changed.joined.items()})
    members = {**state.members, **changed.joined}
    # A blocking recovery waits for as many nodes as there ever were.
    wanted = max(state.strategy.nodes_wanted, len(recovery.capacity))
    state = replace(
        state,
        recovery=recovery,
        members=members,
        draining=draining.joined(state, changed.joined),
        strategy=replace(state.strategy, nodes_wanted=wanted),
    )
    state = copies.after_join(replace(state, lane=replace(state.lane, has_reported_waiting=False)))
    return scale.joined(priced(state.emitting(*state.emitted.changed(now_s, before, state.recovery))))


def lost(state: JobState, nodes: Iterable[NodeId], now_s: float) -> JobState:
    """Partitions of lost nodes are down, jobs that needed them are void."""
    gone = frozenset(nodes) & frozenset(state.recovery.capacity)
    if not gone:
        return state
    before = state.recovery
    occupied = {known.node for known in before.statuses.values()}
    released = frozenset(node for node in gone & state.draining if node not in occupied)
    state = migration.released(state, released)
    recovery = after_loss(transitions.nodes_left(before, released), gone - released, state.strategy)
    down = frozenset(recovery.of_phase(Phase.DOWN))
    state = replace(
        state,
        recovery=recovery,
        members={node: member for node, member in state.members.items() if node not in gone},
        drained=draining.without(state, gone),
        versions={partition: version for partition, version in state.versions.items() if partition not in down},
        # Those on other nodes are cheap to begin again.
        shadows={},
        buffers=state.buffers.without_nodes(gone),
    )
    for attempt, running in state.jobs.items():
        if is_void(state, running.job):
            state = _without(state, attempt).sending(Cancel(attempt))
    state = replace(state, ended=tuple(ended for ended in state.ended if ended.ended.attempt in state.jobs))
    state = migration.after_loss(checkpoint.given_up_if_lost(state), gone, now_s)
    return scale.after_loss(priced(state.emitting(*state.emitted.changed(now_s, before, recovery))), now_s)


def job_ended(state: JobState, ended: JobEnded, now_s: float) -> JobState:
    """A job succeeded, was void, or failed. What was given up before is discarded, whatever it brings."""
    running = state.jobs.get(ended.attempt)
    if running is None:
        return lost(_discarded(state, ended.attempt), ended.lost, now_s)
    if ended.lost:
        state = _discarded(_without(state, ended.attempt), ended.attempt)
        return lost(state, ended.lost, now_s)
    if ended.result is None:
        state = _discarded(_without(state, ended.attempt), ended.attempt)
        is_replay = running.step is None and running.job.is_replay
        if running.job.ships or is_replay:
            reason = ended.failure.message if ended.failure else "the job that brought its state ended without a result"
            state = migration.shipping_failed(state, running.job, reason, now_s)
        if running.job.is_shipping_only or is_replay:
            return state
        if ended.failure is not None and ended.failure.kind == COPY_DAMAGED and copies.has_unproven(state, running.job):
            return copies.damaged(state, running.job, ended.failure.message, now_s)
        return _failed(state, ended.failure or Failure(ENGINE_FAILED, "the job ended without a result"), now_s)
    at_s = now_s if ended.at_s is None else ended.at_s
    if ended.attempt != state.lane.foreground and state.lane.foreground is not None:
        return replace(state, ended=(*state.ended, Ended(ended, at_s)))
    return collected(state, Ended(ended, at_s), now_s)


def collected(state: JobState, ended: Ended, now_s: float) -> JobState:
    """Commit what a job brought that has succeeded."""
    attempt, result = ended.ended.attempt, ended.ended.result
    running = state.jobs[attempt]
    assert result is not None
    state = _without(state, attempt)
    return committed(state, running, result, ended.at_s - running.submitted_s, now_s)


def _without(state: JobState, attempt: str) -> JobState:
    jobs = {known: running for known, running in state.jobs.items() if known != attempt}
    foreground = None if state.lane.foreground == attempt else state.lane.foreground
    lane = replace(state.lane, foreground=foreground, awaited=state.lane.awaited - {attempt}, considered=None)
    return replace(state, jobs=jobs, lane=lane)


def _discarded(state: JobState, attempt: str) -> JobState:
    state, number = state.numbered()
    return state.sending(Discard(number, attempt))


def _failed(state: JobState, failure: Failure, now_s: float) -> JobState:
    """Try again what may go well the next time: not what failed because of the user's own code, nor for ever."""
    failures = state.failures + 1
    pause_s = retrying.pause_s(failures) if failure.kind in (MISPLACED, ENGINE_FAILED) else None
    if pause_s is None:
        return replace(state, failure=failure)
    return replace(state, failures=failures, lane=replace(state.lane, not_before_s=now_s + pause_s))


# The planner


def asked(state: JobState) -> JobState:
    """Ask the planner what can come back, unless that is known."""
    recovery = state.recovery
    if state.question.number is not None or not recovery.capacity or not recovery.has_phase(Phase.DOWN, Phase.STALLED):
        return state
    if state.migration is not None and state.migration.is_paused:
        return state
    if is_same_question(recovery, state.question.unanswerable):
        return state
    number = state.next_number
    state = replace(state, next_number=number + 1, question=Question(number, recovery))
    return state.sending(Plan(number, recovery, state.strategy, copies.nearest(state) if state.copies else {}))


def answered(state: JobState, answer: Planned, now_s: float) -> JobState:
    """Let come back what the planner chose; an answer to another question than the present one is dropped."""
    question = state.question
    if answer.number != question.number:
        raise ProtocolError(f"answer {answer.number} came; expected an answer to question {question.number}")
    if not is_same_question(state.recovery, question.asked):
        return replace(state, question=Question())
    before = state.recovery
    placement = {Partition.parse(name): node for name, node in answer.placement.items()}
    usable = copies.usable(state) if state.copies else {}
    held = {partition: usable[partition, node] for partition, node in placement.items() if (partition, node) in usable}
    after = transitions.scheduled(before, placement, answer.queries, held)
    if after.revision == before.revision:
        return giving_up.kept_within_limit(replace(state, question=Question(unanswerable=before)), now_s)
    gone = frozenset(moved(before, after))
    versions = {partition: version for partition, version in state.versions.items() if partition not in gone}
    # What they buffered for others is on the nodes that they have left.
    buffers = state.buffers.without_producers(gone) if gone else state.buffers
    state = replace(state, recovery=after, versions=versions, buffers=buffers, question=Question())
    state = copies.promoted(state, before, now_s) if state.copies else state
    events = list(planned_events(now_s, before, after, answer.took_s, state.strategy.name))
    emitted, load = state.emitted.measured(now_s, after, state.buffers.size_bytes)
    return giving_up.kept_within_limit(state.emitting(emitted, [*events, *load]), now_s)


# Commands that were carried out, and requests


def answered_command(state: JobState, done: Appended | Published | Done, now_s: float) -> JobState:
    """A numbered command was carried out."""
    if done.number not in state.open_commands:
        raise ProtocolError(f"command {done.number} was answered; expected one of {sorted(state.open_commands)}")
    purpose = state.open_commands[done.number]
    state = replace(state, open_commands={n: why for n, why in state.open_commands.items() if n != done.number})
    if isinstance(purpose, Publication):
        return recorder.published(state, purpose, now_s)
    if isinstance(purpose, Saving):
        return recorder.checkpointed(state, purpose, now_s)
    return state


def command_failed(state: JobState, failed: CommandFailed) -> JobState:
    """Nothing that comes after a command that failed may happen: the driver ends."""
    return replace(state, failure=failed.failure)


def requested(state: JobState, request: Requested, now_s: float) -> JobState:
    """What the user asks for is the goal from now on."""
    asked, lane = request.asked, state.lane
    if isinstance(asked, Scale):
        return scale.requested(state, asked, now_s)
    if isinstance(asked, Move | Drain | Balance):
        return migration.requested(state, asked, now_s)
    if isinstance(asked, Stop):
        return replace(state, goal=replace(state.goal, is_stopping=True))
    due = replace(lane, turn=Turn.DUE, began_s=now_s, is_looked=True)
    if isinstance(asked, Start):
        state = recorder.started(replace(state, goal=Goal(Activity.STARTING)), now_s)
        return priced(state)
    if isinstance(asked, RunEpochs):
        goal = Goal(Activity.RUNNING, asked.epochs, asked.until_idle, asked.drain, state.goal.is_stopping)
        return replace(state, goal=goal, lane=due)
    if isinstance(asked, TakeEpoch):
        return replace(state, goal=Goal(Activity.DRAINING if asked.drain else Activity.STEPPING), lane=due)
    if isinstance(asked, FinishRecovery):
        return replace(state, goal=replace(state.goal, activity=Activity.RECOVERING, drains=False))
    assert isinstance(asked, SaveAll)
    return replace(state, goal=replace(state.goal, activity=Activity.SAVING))


def input_ready(state: JobState, ready: InputReady, now_s: float) -> JobState:
    """The sources have answered."""
    if state.lane.turn is not Turn.POLLING:
        raise ProtocolError(f"input of epoch {ready.epoch} came; expected none, since the sources were not asked")
    return live.input_ready(state, ready, now_s)
