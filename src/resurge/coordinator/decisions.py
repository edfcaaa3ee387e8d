"""What was told, decided and is waited for, in words; and a number by which two states are compared cheaply."""

import re
import zlib
from collections.abc import Iterable

from resurge.coordinator import commands as do
from resurge.coordinator import inputs as told
from resurge.coordinator.state import Activity, JobState, Turn
from resurge.model.work import Job
from resurge.protocols.recovery import Phase


def mark(state: JobState) -> int:
    """A number that differs between states that went different ways; cheap enough to be taken after every input."""
    recovery, lane = state.recovery, state.lane
    counts = (
        recovery.head,
        recovery.checkpoint,
        recovery.revision,
        state.next_number,
        state.next_attempt,
        len(state.open_commands),
    )
    where = (state.goal.activity.name, lane.turn.name, lane.foreground, sorted(state.jobs), sorted(recovery.capacity))
    return zlib.crc32(repr((counts, where, state.failure is not None)).encode())


def decided(commands: Iterable[do.Command]) -> list[str]:
    """Each command in a few words."""
    return [_command(command) for command in commands]


def _command(command: do.Command) -> str:
    if isinstance(command, do.Run):
        return f"run {command.job.attempt}: {purpose(command.job)}"
    if isinstance(command, do.Append):
        return f"log {_record(command.record)}"
    if isinstance(command, do.Publish):
        return f"publish {command.attempt} {_epochs((command.first, command.last))}"
    if isinstance(command, do.Poll):
        return f"ask for epoch {command.epoch}" + ("" if command.row_limit is None else f", {command.row_limit} rows at most")
    if isinstance(command, do.Plan):
        return f"ask the planner which queries recover ({command.number})"
    if isinstance(command, do.AddOlderStates):
        return f"give up {len(command.states)} partitions: they skip to epoch {command.epoch}"
    if isinstance(command, do.Emit):
        return f"emit {type(command.event).__name__}"
    name = re.sub(r"(?<!^)(?=[A-Z])", " ", type(command).__name__).lower()
    return " ".join(str(each) for each in (name, getattr(command, "attempt", ""), getattr(command, "epoch", "")) if each != "")


def _record(record: do.Record) -> str:
    if isinstance(record, do.EpochPlan):
        return f"the plan of epoch {record.epoch}"
    if isinstance(record, do.EpochCommit):
        return f"the commit of epoch {record.epoch}" + (f", {len(record.absent)} absent" if record.absent else "")
    if isinstance(record, do.CatchUpCommit):
        return f"the catch-up of {len(record.cursors)} partitions"
    return f"the checkpoint of epoch {record.epoch}"


def purpose(job: Job) -> str:
    """What a job is for."""
    past = [epoch for epoch in job.epochs if epoch != job.live_epoch]
    shadows = len(job.shadows)
    found = []
    if past:
        found.append(f"catch up {_epochs(past)}" + (f" with {shadows} shadows" if shadows else ""))
    if job.live_epoch is not None:
        found.append(f"live epoch {job.live_epoch}")
    if job.is_checkpoint:
        found.append("checkpoint")
    if job.awaits is not None and not job.epochs:
        found.append("look whether a checkpoint is durable" if job.looks else "wait for a checkpoint")
    what = " and ".join(found) or "move state"
    return f"{what}, {len(job.tasks)} tasks on {len(job.nodes)} nodes"


def _epochs(epochs: Iterable[int]) -> str:
    ordered = sorted(epochs)
    return f"epoch {ordered[0]}" if ordered[0] == ordered[-1] else f"epochs {ordered[0]}-{ordered[-1]}"


def described(event: told.Input) -> str:
    """An input in a few words."""
    if isinstance(event, told.NodesChanged):
        lost = [f"lost {', '.join(event.lost)}"] if event.lost else []
        return "; ".join([*lost, *([f"joined {', '.join(event.joined)}"] if event.joined else [])])
    if isinstance(event, told.JobEnded):
        return f"job {event.attempt} {_outcome(event)}"
    if isinstance(event, told.InputReady):
        return f"no input for epoch {event.epoch}" if event.is_empty else f"input for epoch {event.epoch}"
    if isinstance(event, told.Planned):
        return f"planner: {len(event.placement)} partitions of {len(event.queries)} queries in {event.took_s:.3f} s"
    if isinstance(event, told.Requested):
        return f"request: {type(event.asked).__name__}"
    if isinstance(event, told.CommandFailed):
        return f"command {event.number} failed: {event.failure.kind}"
    number = getattr(event, "number", "")
    return f"{type(event).__name__.lower()} {number}".strip()


def _outcome(event: told.JobEnded) -> str:
    if event.lost:
        return f"void: lost {', '.join(event.lost)}"
    if event.result is None:
        return f"failed: {event.failure.kind if event.failure else 'no result'}"
    return f"succeeded: {event.result.rows_read} rows read"


def why(state: JobState, now_s: float) -> str:
    """What the driver waits for after an input, and where its partitions stand."""
    return f"{waits_for(state, now_s)} | {statuses(state)}"


def waits_for(state: JobState, now_s: float) -> str:
    """The reason why nothing more is done now."""
    lane = state.lane
    if state.failure is not None:
        return f"failed: {state.failure.kind}"
    if lane.foreground is not None:
        return f"waits for {lane.foreground}"
    if state.question.number is not None:
        return "waits for the planner"
    if lane.turn is Turn.POLLING:
        return "waits for the sources"
    if state.goal.activity is Activity.READY:
        return "waits for a request" if not state.open_commands else "waits for answers"
    if not state.recovery.capacity:
        return "waits for a node"
    if now_s < lane.not_before_s:
        return f"pauses {lane.not_before_s - now_s:.2f} s after a failure"
    if lane.awaited:
        return f"recovery comes first: waits for {', '.join(sorted(lane.awaited))}"
    if state.wake_s is not None:
        return f"next look in {state.wake_s - now_s:.2f} s ({state.goal.activity.value})"
    return str(state.goal.activity.value)


def statuses(state: JobState) -> str:
    """Where partitions stand, in one line."""
    recovery = state.recovery
    phases = [f"{len(found)} {phase.value}" for phase in Phase if (found := recovery.of_phase(phase))]
    background = [running.job.attempt for running in state.background]
    beside = [f"beside {', '.join(sorted(background))}"] if background else []
    buffering = ["buffering"] if recovery.is_buffering else []
    return ", ".join([f"head {recovery.head}", f"checkpoint {recovery.checkpoint}", *phases, *beside, *buffering])
