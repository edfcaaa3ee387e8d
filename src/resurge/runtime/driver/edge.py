"""The Spark side of the coordinator's commands: what they do to journal, sinks, sources, checkpoints and nodes.

Numbered commands are carried out in their order, by the thread that asks for them; background jobs have threads of their own.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import msgspec

from resurge.connectors.contracts import StagedPart
from resurge.coordinator import commands as do
from resurge.coordinator import inputs
from resurge.coordinator.copy_placement import answered as answered_copies
from resurge.coordinator.inputs import ENGINE_FAILED, Failure, Input, JobEnded
from resurge.coordinator.move_requests import answered as answered_moves
from resurge.coordinator.newest import holders
from resurge.coordinator.scheduling import answered
from resurge.coordinator.state import JobState
from resurge.errors import EngineError, ResurgeError
from resurge.model.names import NodeId, Partition
from resurge.model.requests import Answer
from resurge.model.work import Job
from resurge.redaction import redacted
from resurge.runtime.driver import results
from resurge.runtime.driver.checkpoint_writes import CheckpointWrites
from resurge.runtime.driver.checkpointing import Checkpoints, described, older_states
from resurge.runtime.driver.compiling import compiled
from resurge.runtime.driver.job_plans import JobFrame, Work, job_plan
from resurge.runtime.driver.ledger import Ledger
from resurge.runtime.driver.membership import Membership
from resurge.runtime.driver.outputs import Outputs, without_rows
from resurge.runtime.driver.runner import NodesLostError
from resurge.runtime.driver.scaling import Scaler
from resurge.runtime.driver.slot_sharing import SlotSharing
from resurge.runtime.driver.slots import Slots
from resurge.runtime.driver.sources import Sources
from resurge.runtime.driver.versions import Versions
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.runtime.worker.packets import merge_maxima
from resurge.storage.checkpoint_store import CheckpointManifest
from resurge.storage.journal import CatchUpCommitted, EpochCommitted, EpochPlanned, Journal
from resurge.storage.node_store import remove_job
from resurge.telemetry.events import Warned
from resurge.telemetry.log import TelemetryLog

BACKGROUND_S = 30.0
"""How long a driver that ends waits for its background jobs: their tasks must not write into folders that are being removed."""
_STARTED_S = time.time() - time.monotonic()


def clock_s() -> float:
    """Seconds since 1970 that never go back."""
    return _STARTED_S + time.monotonic()


@dataclass
class Attempt:
    """A job as it runs on Spark, and what came of it."""

    job: Job
    slots: Slots
    work: Work
    plan: JobPlan
    reports: list[SlotReport] | None = None
    error: Exception | None = None
    ended_s: float | None = None
    is_reported: bool = False
    thread: threading.Thread | None = None

    def parts(self, first: int, last: int) -> list[StagedPart]:
        """What was staged for these epochs."""
        parts = (part for report in self.reports or () for part in report.parts)
        return [part for part in parts if first <= part.epoch <= last]


@dataclass
class Kept:
    """What a driver reads and writes: the journal and the checkpoints, sources and sinks, and what it knows of past epochs and nodes."""

    journal: Journal
    checkpoints: Checkpoints
    sources: Sources
    outputs: Outputs
    ledger: Ledger
    versions: Versions


Settled = tuple[Collection[Partition], Collection[Partition], Collection[NodeId], Collection[tuple[Partition, NodeId]]]
"""The partitions, shadows, nodes and copies that are there."""


class Edge:
    """Everything that a driver does outside of its coordinator."""

    def __init__(
        self,
        frame: JobFrame,
        kept: Kept,
        membership: Membership,
        telemetry: TelemetryLog,
        tell: Callable[[Input | Attempt], None],
    ) -> None:
        self.frame = frame
        self.membership = membership
        self.runner = membership.runner
        self.telemetry = telemetry
        self.tell = tell
        self.journal, self.checkpoints = kept.journal, kept.checkpoints
        self.sources, self.outputs = kept.sources, kept.outputs
        self.ledger, self.versions = kept.ledger, kept.versions
        self.attempts: dict[str, Attempt] = {}
        self.foreground: Attempt | None = None
        self.causes: dict[Failure, Exception] = {}
        self.scaler: Scaler | None = None
        self._scaling = threading.Lock()
        self.respond: Callable[[str, Answer], None] = lambda request, answer: None
        self._settled: Settled = ((), (), (), ())
        self.sharing = SlotSharing(membership, frame.program)
        self.polled: EpochPlanned | None = None
        self.checkpoint_writes = CheckpointWrites(self.checkpoints, self.versions)
        self.watermarks_us: dict[str, int] = {}
        self.reached = self.sources.initial()

    def carry_out(self, command: do.Command, state: JobState) -> None:
        """Do what the coordinator asks for; the answer is told, at once or from the thread of a job."""
        if isinstance(command, do.Emit):
            self.telemetry.write(command.event)
        elif isinstance(command, do.Run):
            self._run(command.job, state)
        elif isinstance(command, do.Cancel):
            self._cancel(command)
        elif isinstance(command, do.Poll):
            self._poll(command)
        elif isinstance(command, do.Plan):
            self._plan(command)
        elif isinstance(command, do.PlanMoves):
            arguments = (command, self.versions.sizes_bytes())
            threading.Thread(target=self._plan_moves, args=arguments, daemon=True).start()
        elif isinstance(command, do.PlanCopies):
            threading.Thread(target=self._plan_copies, args=(command,), daemon=True).start()
        elif isinstance(command, do.Respond):
            self.respond(command.request, command.answer)
            self.tell(inputs.Done(command.number))
        elif isinstance(command, do.RequestNodes | do.ReleaseNodes):
            threading.Thread(target=self._scale, args=(command,), daemon=True).start()
            self.tell(inputs.Done(command.number))
        elif isinstance(command, do.Append):
            self._append(command)
            self.tell(inputs.Appended(command.number))
        elif isinstance(command, do.Publish):
            self.outputs.show(self.attempts[command.attempt].parts(command.first, command.last))
            self.tell(inputs.Published(command.number))
        else:
            self._keep_or_drop(command, state)
            self.tell(inputs.Done(command.number))

    def _keep_or_drop(
        self,
        command: do.WriteManifest | do.AddOlderStates | do.Forget | do.Adopt | do.Discard | do.DropBuffers | do.ChangeRoles,
        state: JobState,
    ) -> None:
        if isinstance(command, do.Adopt):
            self._adopt(self.attempts[command.attempt], state)
        elif isinstance(command, do.Discard):
            self._discard(command, state)
        elif isinstance(command, do.DropBuffers):
            self.versions.drop_buffers_of(command.attempt, command.node)
        elif isinstance(command, do.ChangeRoles):
            self.versions.change_roles(command.promoted, command.demoted)
        elif isinstance(command, do.WriteManifest):
            self.checkpoint_writes.finish(command, state)
        elif isinstance(command, do.AddOlderStates):
            new = CheckpointManifest(command.epoch, self.journal.generation, self.watermarks_us, dict(self.reached), [])
            older = older_states(self.versions.checkpoints, command.states)
            self.checkpoints.write_with(described(new, state), older)
        else:
            self._forget(command, state)

    def settled(self, state: JobState) -> None:
        """All commands of one input are carried out: let go of what nothing will ask for."""
        for attempt in [name for name, known in self.attempts.items() if name not in state.jobs and known.is_reported]:
            del self.attempts[attempt]
        self.checkpoint_writes.settled(state)
        known = (holders(state.versions), state.shadows, state.recovery.capacity.keys(), state.copies)
        if any(mine is not other and mine != other for mine, other in zip(known, self._settled, strict=True)):
            self._settled = known
            self.versions.keep_only(*known)

    # Input

    def _poll(self, command: do.Poll) -> None:
        offsets = self.sources.next_offsets(self.reached, command.row_limit)
        is_empty = all(start == end for start, end in offsets.values())
        arrival_s = self.sources.arrival_s(offsets)
        self.polled = EpochPlanned(
            command.epoch, offsets, dict(self.watermarks_us), arrival_s, command.is_drain, self.journal.generation
        )
        self.tell(inputs.InputReady(command.epoch, is_empty, arrival_s, self.sources.is_capped))

    def _plan(self, command: do.Plan) -> None:
        began_s = time.monotonic()
        answer = answered(command.recovery, command.strategy, command.copies)
        placement = {str(partition): node for partition, node in answer.placement.items()}
        self.tell(inputs.Planned(command.number, placement, list(answer.queries), time.monotonic() - began_s))

    def _plan_moves(self, command: do.PlanMoves, sizes_bytes: Mapping[Partition, int]) -> None:
        """Beside the epochs: a large problem takes seconds."""
        try:
            answer = answered_moves(command.number, command.problem, sizes_bytes)
        except Exception as error:
            answer = inputs.MovesPlanned(command.number, refusal=f"the planner failed: {type(error).__name__}: {error}")
        self.tell(answer)

    def _scale(self, command: do.RequestNodes | do.ReleaseNodes) -> None:
        """Beside the epochs: a cluster manager may not answer for a while. What is not done is asked for again."""
        if self.scaler is None:
            return
        try:
            with self._scaling:
                if isinstance(command, do.RequestNodes):
                    self.scaler.request(command.total)
                else:
                    self.scaler.release(command.nodes)
        except Exception as error:
            self.telemetry.write(Warned(clock_s(), f"the number of nodes could not be changed: {redacted(str(error))}"))

    def _plan_copies(self, command: do.PlanCopies) -> None:
        """Beside the epochs, as for moves."""
        try:
            answer = answered_copies(command)
        except Exception as error:
            answer = inputs.CopiesPlanned(command.number, refusal=f"the planner failed: {type(error).__name__}: {error}")
        self.tell(answer)

    # Jobs

    def _run(self, job: Job, state: JobState) -> None:
        slots = self.sharing.slots(job)
        if (usual := self.versions.usual) is not None and not usual.serves(job, slots):
            usual = None
        work = compiled(job, self.frame.program, self.versions, self.ledger, state.sources_published, usual)
        is_foreground = state.lane.foreground == job.attempt
        # Removing files is for live epochs: a background job is to disturb nobody.
        expired = self.versions.expired() if is_foreground else {}
        plan = job_plan(self.frame, slots, work, job.attempt, expired, self.versions.checkpoints)
        plan = self.checkpoint_writes.planned(job, plan)
        self.versions.pin(plan)
        attempt = self.attempts[job.attempt] = Attempt(job, slots, work, plan)
        if is_foreground:
            self.foreground = attempt
        else:
            attempt.thread = threading.Thread(target=self._run_in_background, args=(attempt,), daemon=True)
            attempt.thread.start()

    def _cancel(self, command: do.Cancel) -> None:
        """A job that has not begun never does. One that runs is ended by its runner, which watches its nodes, or ends for nothing."""
        if self.foreground is not None and self.foreground.job.attempt == command.attempt:
            self.foreground.is_reported, self.foreground = True, None
            self.tell(JobEnded(command.attempt, failure=Failure(ENGINE_FAILED, "cancelled before it began")))

    def run_foreground(self) -> JobEnded | None:
        """Run the job that everything else waits for, if there is one, in this thread, and say what came of it."""
        attempt, self.foreground = self.foreground, None
        if attempt is None:
            return None
        try:
            attempt.reports = self.runner.run(attempt.plan)
        except (NodesLostError, ResurgeError) as error:
            attempt.error = error
        attempt.ended_s = clock_s()
        return self.ended(attempt)

    def _run_in_background(self, attempt: Attempt) -> None:
        try:
            attempt.reports = self.runner.run(attempt.plan)
        except Exception as error:
            # Whatever it is, it must not be lost with this thread, nor may anybody wait for it for ever.
            attempt.error = error
        attempt.ended_s = clock_s()
        self.tell(attempt)

    def ended(self, attempt: Attempt) -> JobEnded:
        """What came of an attempt, as an input of the coordinator; asked by the thread that decides."""
        attempt.is_reported = True
        return msgspec.structs.replace(self._outcome(attempt), at_s=attempt.ended_s)

    def _outcome(self, attempt: Attempt) -> JobEnded:
        name, error = attempt.job.attempt, attempt.error
        if isinstance(error, NodesLostError):
            self.membership.lost(error.nodes)
            return JobEnded(name, lost=sorted(error.nodes))
        if error is not None:
            failure = Failure(ENGINE_FAILED if isinstance(error, EngineError) else type(error).__name__, redacted(str(error)))
            self.causes[failure] = error
            return JobEnded(name, failure=failure)
        reports = attempt.reports or []
        if (failed := results.failure(reports)) is not None:
            return JobEnded(name, failure=failed)
        known = {"lag_rows": self._lag_rows(attempt.job), "replayed_buffers": sum(map(len, attempt.work.replays.values()))}
        levels = self.frame.program.levels
        others = self.versions.beside(attempt.plan, reports)
        result = results.job_result(attempt.job, reports, others, levels=levels, **known)
        if attempt.job.live_epoch is not None and len(attempt.job.epochs) == 1:
            self.sharing.observe(attempt.plan, reports, result.rows_read, result.state_bytes)
        durable = self.checkpoint_writes.durable(attempt.job, attempt.plan, reports)
        return JobEnded(name, msgspec.structs.replace(result, durable=durable))

    def _lag_rows(self, job: Job) -> int | None:
        if job.live_epoch is None:
            return None
        reached = self.reached | {name: end for name, (_, end) in self.ledger.planned[job.live_epoch].offsets.items()}
        newest = self.sources.newest(reached)
        if (lag := self.sources.lag_by_partition(reached, newest, clock_s())) is not None:
            self.telemetry.write(lag)
        return self.sources.lag_rows(reached, newest)

    def _adopt(self, attempt: Attempt, state: JobState) -> None:
        self.versions.adopt(attempt.job, attempt.plan, attempt.reports or [], attempt.slots)
        if attempt.job.buffered_for:
            self.versions.buffer(attempt.job.attempt, attempt.reports or [])
        self.checkpoint_writes.adopted(attempt.job, attempt.plan, state)
        self.checkpoint_writes.reached(attempt.job.attempt, self.watermarks_us, self.reached)

    def _discard(self, command: do.Discard, state: JobState) -> None:
        attempt = self.attempts.get(command.attempt)
        # One that ended after the driver went back to an older checkpoint is known no more.
        if attempt is not None:
            self.outputs.discard(attempt.reports or ())
            self.versions.abandoned(attempt.plan, state.recovery.capacity)

    # Records

    def _append(self, command: do.Append) -> None:
        record = command.record
        if isinstance(record, do.EpochPlan):
            assert self.polled is not None
            self.journal.append(self.polled)
            self.ledger.planned[record.epoch] = self.polled
        elif isinstance(record, do.EpochCommit):
            self._commit_epoch(record)
        elif isinstance(record, do.CatchUpCommit):
            self._commit_catch_up(record)
        else:
            manifest = self.checkpoints.log()
            self.versions.restore_from(manifest.epoch, manifest.cohorts)

    def _commit_epoch(self, record: do.EpochCommit) -> None:
        attempt, planned = self.attempts[record.attempt], self.ledger.planned[record.epoch]
        maxima: dict[int, dict[str, int]] = {record.epoch: dict(planned.watermarks_us)}
        for report in attempt.reports or ():
            merge_maxima(maxima, report.maxima_us)
        parts = attempt.parts(record.epoch, record.epoch)
        absent = None if record.absent is None else [str(partition) for partition in record.absent]
        rows = self.outputs.kept(parts, self.journal)
        rows_read = sum(report.epoch_rows.get(record.epoch, 0) for report in attempt.reports or ())
        self.journal.append(EpochCommitted(record.epoch, maxima[record.epoch], without_rows(parts), absent, rows, rows_read))
        self.watermarks_us = self.ledger.closing_us[record.epoch] = maxima[record.epoch]
        self.reached |= {name: end for name, (_, end) in planned.offsets.items()}
        self.checkpoint_writes.reached(record.attempt, self.watermarks_us, self.reached)

    def _commit_catch_up(self, record: do.CatchUpCommit) -> None:
        attempt = self.attempts[record.attempt]
        last = max(epoch for epoch in attempt.job.epochs if epoch < record.below)
        cursors = {str(partition): cursor for partition, cursor in record.cursors.items()}
        parts = attempt.parts(0, record.below - 1)
        rows = self.outputs.kept(parts, self.journal)
        self.journal.append(CatchUpCommitted(last, cursors, without_rows(parts), rows))

    # Checkpoints

    def _forget(self, command: do.Forget, state: JobState) -> None:
        self.checkpoints.forget()
        if command.buffers_through is not None:
            self.versions.drop_buffers(command.buffers_through)
        self.versions.keep_checkpoints({cut.epoch for cut in state.recovery.cuts.kept})
        self.ledger.forget_before(command.first + 1)
        if self.checkpoints.oldest_reached:
            self.sources.commit(self.checkpoints.oldest_reached)
        self.outputs.forget(self.checkpoints.oldest_epoch)

    # The end

    def let_go(self) -> None:
        """Wait for background jobs, but not for ever, and release what was opened."""
        self.join()
        self.sources.stop()
        self.runner.close()
        remove_job(self.frame.local_folder)
        self.journal.store.flush()

    def join(self) -> None:
        """Wait for background jobs, but not for ever."""
        deadline_s = time.monotonic() + BACKGROUND_S
        for attempt in self.attempts.values():
            if attempt.thread is not None:
                attempt.thread.join(max(0.0, deadline_s - time.monotonic()))
