"""A driver in virtual time: it carries out the coordinator's commands in the simulated world, and tells it what happens there."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import simpy

from resurge.coordinator import commands as do
from resurge.coordinator import inputs
from resurge.coordinator.handle import handle
from resurge.coordinator.inputs import Input, JobEnded, JobResult, Member, NodesChanged
from resurge.coordinator.job_events import described_graph
from resurge.coordinator.move_requests import answered as answered_moves
from resurge.coordinator.scheduling import Strategy, answered
from resurge.coordinator.starting import Found, first_state
from resurge.coordinator.state import Description, JobState, Pending, Settings
from resurge.errors import SimulationError, StaleGenerationError
from resurge.model.names import NodeId, Partition
from resurge.model.work import Job
from resurge.protocols.recovery import RecoveryState
from resurge.simulator.checkers import check_commands, check_step
from resurge.simulator.journal import Journal, Parts, Planned
from resurge.simulator.requests import Requests
from resurge.simulator.workload import query_name
from resurge.simulator.world import Outcome, World
from resurge.telemetry.log import TelemetryLog

LATE = 0.3
"""How often a job that was given up ends all the same, later, with a result that nobody may use."""
LATEST_S = 3.0
Recorded = tuple[float, Input]
Written = do.Append | do.Publish | do.WriteManifest | do.Forget | do.Adopt | do.Discard | do.DropBuffers | do.Respond


@dataclass(frozen=True)
class DriverOptions:
    """What a job is run with."""

    settings: Settings
    strategy: Strategy
    is_checked: bool = True


@dataclass
class Running:
    """A job on its way: what it will have written, when it ends if nothing happens, and whether it has ended."""

    job: Job
    outcome: Outcome
    started_s: float
    ends_s: float
    restore_s: float
    is_ended: bool = False


@dataclass
class Doomed:
    """When a driver ends by itself: after so many more commands, if it is to end at all."""

    commands_left: int | None = None
    then: Callable[[], None] = field(default=lambda: None)


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
        self.adopted: list[str] = []
        self.failing: list[str] = []
        self.requests = Requests()
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
        journal, workload = self.journal, self.world.workload
        arrivals_s = {epoch: planned.arrival_s for epoch, planned in journal.planned.items()}
        pending = None
        if journal.pending is not None:
            pending = Pending(journal.pending, journal.planned[journal.pending].arrival_s, since_s=self.env.now)
        found = Found(
            journal.cuts,
            journal.head,
            journal.published(workload.graph.upstream),
            journal.head,
            arrivals_s,
            pending,
            workload.costs,
        )
        members = {node: self._member(node, capacity) for node, capacity in self.world.members(self.env.now).items()}
        return first_state(self.options.settings, self._description(), self.options.strategy, workload.graph, members, found)

    def _description(self) -> Description:
        workload = self.world.workload
        outputs: dict[str, list[Partition]] = {query: [] for query in workload.priorities}
        for query, partition in workload.outputs.items():
            outputs[query_name(query, workload.priorities)].append(partition)
        topology = described_graph(self.env.now, workload.graph, {query: mine[0].operator for query, mine in outputs.items()})
        shown = {query: tuple(mine) for query, mine in outputs.items()}
        return Description(workload.name, "simulator", self.generation, workload.priorities, workload.key_groups, shown, topology)

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
        for command in wanted:
            if not self.is_alive:
                return
            self._carry_out(command)
        is_owner = self.is_alive and self.journal.generation == self.generation
        if self.options.is_checked and is_owner and self.state.recovery is not before.recovery:
            check_step(before.recovery, self.state, self.world)

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
        elif isinstance(command, do.Plan):
            answer = answered(command.recovery, command.strategy)
            placement = {str(partition): node for partition, node in answer.placement.items()}
            self.deliver(inputs.Planned(command.number, placement, list(answer.queries)))
        elif isinstance(command, do.PlanMoves):
            self.deliver(answered_moves(command.number, command.problem))
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
        elif isinstance(command, do.Respond):
            self.requests.answered(command.request, command.answer)
        elif isinstance(command, do.WriteManifest):
            self.world.write_manifest(command.epoch, command.absent, self.outcomes[command.attempt])
        elif isinstance(command, do.DropBuffers):
            self.world.drop_buffers(command.attempt, command.node)
        else:
            self.world.forget_before(self.journal.cuts, has_buffers=not command.is_whole)
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
        self.deliver(inputs.Appended(command.number))

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
        self._end(running, JobEnded(running.job.attempt, self._result(running)))

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

    def _result(self, running: Running) -> JobResult:
        job, parts = running.job, running.outcome.parts
        rows = lag = 0
        if job.live_epoch is not None and (planned := self.journal.planned.get(job.live_epoch)):
            rows = round(planned.span_s * self.timing.rows_per_s)
            lag = round((self.env.now - planned.end_s) * self.timing.rows_per_s)
        shown = {query_name(query, self.world.workload.priorities) for query, epoch in parts if epoch == job.live_epoch}
        return JobResult(
            published_epochs=sorted({epoch for _, epoch in parts}),
            rows_read=rows,
            restore_s=running.restore_s,
            query_rows=dict.fromkeys(sorted(shown), 1),
            lag_rows=lag,
            shipped_bytes={str(partition): size for partition, size in running.outcome.shipped_bytes.items()},
            shipping_s=self.world.shipping_s(job) if job.leaves else 0.0,
        )
