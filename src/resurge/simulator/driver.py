"""A driver in virtual time: it carries out the coordinator's commands in the simulated world, and tells it what happens there."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import simpy

from resurge.coordinator import commands as do
from resurge.coordinator import inputs
from resurge.coordinator.handle import handle
from resurge.coordinator.inputs import Input, JobEnded, Member, NodesChanged
from resurge.coordinator.scheduling import Strategy
from resurge.coordinator.starting import first_state
from resurge.coordinator.state import JobState, Settings
from resurge.errors import SimulationError, StaleGenerationError
from resurge.model.names import NodeId
from resurge.model.work import Job
from resurge.protocols.recovery import RecoveryState
from resurge.simulator.beginning import description, found_in
from resurge.simulator.checkers import check_commands, check_gaps, check_step
from resurge.simulator.jobs import result_of
from resurge.simulator.journal import Journal, Parts, Planned
from resurge.simulator.planners import planned
from resurge.simulator.requests import Requests
from resurge.simulator.running import Doomed, Running
from resurge.simulator.world import Outcome, World
from resurge.telemetry.log import TelemetryLog

LATE = 0.3
"""How often a job that was given up ends all the same, later, with a result that nobody may use."""
LATEST_S = 3.0
Recorded = tuple[float, Input]
Answered = do.ChangeRoles | do.Respond | do.RequestNodes | do.ReleaseNodes
Kept = do.WriteManifest | do.AddOlderStates | do.Forget | do.Adopt | do.Discard | do.DropBuffers
Written = do.Append | do.Publish | Kept | Answered


@dataclass(frozen=True)
class DriverOptions:
    """What a job is run with."""

    settings: Settings
    strategy: Strategy
    is_checked: bool = True


class Driver:
    """One driver's life; what it knows of nodes is what it is told."""

    def __init__(
        self,
        env: simpy.Environment,
        world: World,
        journal: Journal,
        telemetry: TelemetryLog,
        options: DriverOptions,
        rng: random.Random,
    ) -> None:
        self.env, self.world, self.journal, self.telemetry, self.options, self.rng = env, world, journal, telemetry, options, rng
        self.timing = world.timing
        self.generation = journal.take_over()
        self.polled: dict[int, Planned] = {}
        self.running: dict[str, Running] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.written_s: dict[str, float] = {}
        self.adopted: list[str] = []
        self.failing: list[str] = []
        self.requests = Requests()
        self.scaler: Callable[[do.RequestNodes | do.ReleaseNodes], None] = lambda command: None
        self.doomed = Doomed()
        self.is_alive = True
        self.stalled_until_s = float("-inf")
        self._waiting: deque[Input] = deque()
        self._is_handling = False
        self._tick_s: float | None = None
        self.recorded: list[Recorded] = []
        self.sent: list[tuple[do.Command, ...]] = []
        self._redo()
        self.known = set(world.members(env.now))
        self.first = self.state = self._first_state()

    def _redo(self) -> None:
        """Publish what is logged: the driver before may have ended before it did."""
        for attempt, parts in self.journal.logged:
            self.world.sink.publish(attempt, parts)

    def _first_state(self) -> JobState:
        members = {node: self._member(node, capacity) for node, capacity in self.world.members(self.env.now).items()}
        options, graph = self.options, self.world.workload.graph
        found = found_in(self.journal, self.world, self.env.now)
        described = description(self.world.workload, self.generation, self.env.now)
        return first_state(options.settings, described, options.strategy, graph, members, found)

    @property
    def recovery(self) -> RecoveryState:
        """What the driver knows."""
        return self.state.recovery

    @property
    def is_in_a_job(self) -> bool:
        """Whether a job runs that live epochs wait for."""
        return self.state.lane.foreground is not None

    def start(self) -> None:
        """Go on from where the last driver was, until it is told to stop."""
        self.deliver(inputs.Requested(inputs.Start()))
        self.deliver(inputs.Requested(inputs.RunEpochs()))

    # Inputs

    def deliver(self, event: Input) -> None:
        """Let the coordinator handle an input and carry out what it asks for; answers are handled in turn."""
        if not self.is_alive:
            return
        self._waiting.append(event)
        if self._is_handling:
            return
        if self.env.now < self.stalled_until_s:
            return
        self._is_handling = True
        try:
            while self._waiting and self.is_alive and self.env.now >= self.stalled_until_s:
                self._handle(self._waiting.popleft())
        finally:
            self._is_handling = False
        self._schedule_tick()

    def _handle(self, event: Input) -> None:
        before = self.state
        self.state, wanted = handle(before, event, self.env.now)
        self.recorded.append((self.env.now, event))
        self.sent.append(wanted)
        if self.state.failure is not None and before.failure is None:
            raise SimulationError(f"the driver gave up: {self.state.failure.kind}: {self.state.failure.message}")
        check_commands(before, self.state, wanted)
        check_gaps(before, self.state)
        for command in wanted:
            if not self.is_alive:
                return
            self._carry_out(command)
        is_owner = self.is_alive and self.journal.generation == self.generation
        if self.options.is_checked and is_owner and self.state.recovery is not before.recovery:
            check_step(before, self.state, self.world)

    def stall(self, for_s: float) -> None:
        """Stand still: inputs wait, and time goes on."""
        self.stalled_until_s = self.env.now + for_s
        self._after(for_s, lambda: self.deliver(inputs.Tick()))

    def die(self) -> None:
        """End at once: nothing that was asked for and not yet done happens."""
        self.is_alive = False

    def _schedule_tick(self) -> None:
        wake_s = self.state.wake_s
        if not self.is_alive or wake_s is None or wake_s == self._tick_s:
            return
        self._tick_s = wake_s
        self._after(max(0.0, wake_s - self.env.now), lambda: self._tick(wake_s))

    def _tick(self, wake_s: float) -> None:
        if self._tick_s == wake_s:
            self._tick_s = None
            self.deliver(inputs.Tick())

    def _after(self, wait_s: float, action: Callable[[], None]) -> None:
        self.env.timeout(wait_s).callbacks.append(lambda _: action())

    # Nodes

    def look(self) -> None:
        """See which nodes seem to be there."""
        members = self.world.members(self.env.now)
        lost = sorted(self.known - members.keys())
        joined = {node: self._member(node, members[node]) for node in sorted(members.keys() - self.known)}
        self.known = set(members)
        if lost or joined:
            # Whether a job notices first that its node is gone, or the driver, is chance.
            if lost and self.rng.random() < 0.5:
                self._void(lost)
            self.deliver(NodesChanged(lost, joined))

    def _member(self, node: NodeId, capacity: float) -> Member:
        return Member(capacity, self.world.nodes[node].domain)

    def _void(self, lost: list[NodeId]) -> None:
        for running in list(self.running.values()):
            mine = [node for node in lost if node in running.job.nodes]
            if mine and not running.is_ended:
                self._end(running, JobEnded(running.job.attempt, lost=mine))

    # Commands

    def _carry_out(self, command: do.Command) -> None:
        if isinstance(command, do.Emit):
            if self.journal.generation == self.generation:
                self.telemetry.write(command.event)
        elif isinstance(command, do.Cancel):
            self._cancel(command)
        elif isinstance(command, do.Run):
            self._run(command.job)
        elif isinstance(command, do.Poll):
            self._poll(command)
        elif isinstance(command, do.Plan | do.PlanMoves | do.PlanCopies):
            self.deliver(planned(command))
        else:
            self._write(command)

    def _write(self, command: Written) -> None:
        """Carry out a numbered command, unless the driver ends before it."""
        if self.doomed.commands_left is not None:
            self.doomed.commands_left -= 1
            if self.doomed.commands_left < 0:
                self.die()
                self.doomed.then()
                return
        if isinstance(command, do.Append):
            self._append(command)
            return
        if isinstance(command, do.Publish):
            parts = self._parts(command.attempt, command.first, command.last)
            self.world.sink.publish(command.attempt, parts)
            self.deliver(inputs.Published(command.number))
            return
        if self.journal.generation != self.generation and not isinstance(command, do.Discard):
            # What a superseded driver does to files of its own generation touches nobody.
            pass
        elif isinstance(command, do.Adopt):
            self.world.adopt(command.attempt, self.outcomes[command.attempt])
            self.adopted.append(command.attempt)
        elif isinstance(command, do.Discard):
            self.outcomes.pop(command.attempt, None)
        elif isinstance(command, do.RequestNodes | do.ReleaseNodes):
            self.scaler(command)
        elif isinstance(command, do.Respond):
            self.requests.answered(command.request, command.answer)
        elif isinstance(command, do.ChangeRoles):
            self.world.change_roles(command.promoted, command.demoted)
        elif isinstance(command, do.WriteManifest):
            self.world.write_manifest(command.epoch, command.absent, self.outcomes[command.attempt])
        elif isinstance(command, do.AddOlderStates):
            self.world.add_older_states(command.epoch, command.states)
        elif isinstance(command, do.DropBuffers):
            self.world.drop_buffers(command.attempt, command.node)
        else:
            self.world.forget_before(self.journal.cuts, command.buffers_through)
            for attempt in self.adopted:
                self.outcomes.pop(attempt, None)
            self.adopted.clear()
        self.deliver(inputs.Done(command.number))

    def _append(self, command: do.Append) -> None:
        record, planned = command.record, None
        parts: Parts = ()
        if isinstance(record, do.EpochPlan):
            planned = self.polled.pop(record.epoch, None)
        elif isinstance(record, do.EpochCommit):
            parts = self._parts(record.attempt, record.epoch, record.epoch)
        elif isinstance(record, do.CatchUpCommit):
            parts = self._parts(record.attempt, 0, record.below - 1)
        elif not self.world.has_manifest(record.epoch, record.absent):
            raise SimulationError(
                f"the checkpoint of epoch {record.epoch} was logged; expected its manifest to be written before"
            )
        try:
            self.journal.append(self.generation, record, parts, planned, self.world.workload.graph.upstream)
        except StaleGenerationError:
            # Another driver has taken over: this one ends without doing anything more.
            self.die()
            return
        if isinstance(record, do.CheckpointCommit):
            self._declare_gaps()
        self.deliver(inputs.Appended(command.number))

    def _declare_gaps(self) -> None:
        """A checkpoint that is logged says what partitions have skipped: readers miss that for good."""
        for partition, gap in self.state.gaps.items():
            if gap != self.journal.gaps.get(partition):
                for query in self.world.workload.queries_shown_by.get(partition, ()):
                    self.world.sink.skip(query, gap.last)
        self.journal.gaps = self.state.gaps

    def _parts(self, attempt: str, first: int, last: int) -> Parts:
        return tuple(part for part in self.outcomes[attempt].parts if first <= part[1] <= last)

    def _poll(self, command: do.Poll) -> None:
        start_s = self.journal.end_s()
        longest_s = float("inf") if command.row_limit is None else command.row_limit / self.timing.rows_per_s
        planned = Planned(start_s, min(self.env.now, start_s + longest_s))
        is_empty = planned.end_s <= planned.start_s
        if not is_empty:
            self.polled[command.epoch] = planned
        self.deliver(inputs.InputReady(command.epoch, is_empty, planned.arrival_s))

    # Jobs

    def _run(self, job: Job) -> None:
        """Let a job take its time; an unreachable node voids it once it is declared dead."""
        if self.journal.generation != self.generation:
            # Superseded, and it does not know: its jobs may well succeed, but it will find that it cannot commit them.
            self._start(job, Outcome({}, {}, ()), self.timing.interval_s, 0.0)
            return
        spans_s = {epoch: self.journal.planned[epoch].span_s for epoch in job.epochs}
        took_s, restore_s = self.world.duration_s(job, spans_s)
        has_died = any(not self.world.nodes[node].is_up() for node in job.nodes)
        outcome = Outcome({}, {}, ()) if has_died else self.world.run(job)
        self._start(job, outcome, took_s, restore_s)

    def _start(self, job: Job, outcome: Outcome, took_s: float, restore_s: float) -> None:
        running = Running(job, outcome, self.env.now, self.env.now + took_s, restore_s)
        self.running[job.attempt] = running
        self._after(took_s, lambda: self._finish(running))

    def _finish(self, running: Running) -> None:
        """A job has come to its end: its result arrives, unless one of its nodes is unreachable."""
        if running.is_ended:
            return
        if self.failing and not self.world.unreachable(running.job.nodes):
            kind = self.failing.pop()
            self._end(running, JobEnded(running.job.attempt, failure=inputs.Failure(kind, "as the schedule has it")))
        elif not self.world.unreachable(running.job.nodes):
            self._succeed(running)

    def _succeed(self, running: Running) -> None:
        self.outcomes[running.job.attempt] = running.outcome
        if running.job.is_checkpoint and running.job.epochs:
            # How long writing it takes is no other chance than the attempt's, so that it changes no schedule.
            chance = random.Random(running.job.attempt).random()
            self.written_s[running.job.attempt] = self.env.now + chance * self.timing.longest_write_s
        result = result_of(running, self.journal, self.world, self.env.now, self._durable(running.job))
        self._end(running, JobEnded(running.job.attempt, result))

    def _cancel(self, command: do.Cancel) -> None:
        """A job is stopped; or its result is on its way already, and comes late."""
        running = self.running.get(command.attempt)
        if running is None or running.is_ended:
            return
        if self.rng.random() < LATE:
            self._after(self.rng.uniform(0.0, LATEST_S), lambda: None if running.is_ended else self._succeed(running))
        else:
            self._end(running, JobEnded(running.job.attempt, lost=self.world.unreachable(sorted(running.job.nodes))))

    def heal(self) -> None:
        """Nodes that were cut off are heard again: jobs that have come to their end meanwhile bring their results."""
        for running in list(self.running.values()):
            if running.ends_s <= self.env.now:
                self._finish(running)

    def _end(self, running: Running, ended: JobEnded) -> None:
        running.is_ended = True
        self.running.pop(running.job.attempt, None)
        self.deliver(ended)

    def _durable(self, job: Job) -> str | None:
        """The checkpoint that is durable by now, of the one that a job takes or asks for."""
        if job.is_checkpoint and not job.epochs:
            return job.attempt
        asked = job.awaits or ""
        if self.outcomes.get(asked) is None or any(not self.world.nodes[node].is_up() for node in self._writers(asked)):
            return None
        is_waited_for = not job.epochs and not job.looks
        return asked if is_waited_for or self.env.now >= self.written_s[asked] else None

    def _writers(self, attempt: str) -> set[NodeId]:
        return {state.node for state in self.outcomes[attempt].states.values()}
