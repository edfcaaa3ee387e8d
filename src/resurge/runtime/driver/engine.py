"""A driver on Spark: it tells the coordinator what happens, and carries out what the coordinator asks for.

Every run begins like a recovery: all partitions are down at the last checkpoint, come back as capacity allows, catch up with
the journal, and then take new epochs. So a restarted driver, a lost node and a first start are one mechanism.
"""

import queue
import threading
from collections import deque

from resurge.coordinator import inputs, job_events
from resurge.coordinator.commands import Command, Poll
from resurge.coordinator.handle import handle
from resurge.coordinator.inputs import CommandFailed, Failure, Input, Instruction, JobEnded, Requested
from resurge.coordinator.scheduling import Strategy
from resurge.coordinator.starting import Found, first_state, went_back
from resurge.coordinator.state import Description, JobState, Settings
from resurge.errors import CheckpointDamagedError, JobError, ResurgeError, StorageError
from resurge.model.names import Partition
from resurge.model.requests import Ask
from resurge.model.topology import Topology
from resurge.operators.program import compile_topology
from resurge.protocols.recovery import RecoveryState
from resurge.redaction import redacted
from resurge.runtime.driver.checkpointing import Checkpoints
from resurge.runtime.driver.edge import Attempt, Edge, Kept, clock_s
from resurge.runtime.driver.failures import raise_failure
from resurge.runtime.driver.graphs import output_partitions, partition_graph
from resurge.runtime.driver.input_recorder import InputRecorder
from resurge.runtime.driver.job_plans import JobFrame
from resurge.runtime.driver.ledger import Ledger, shown_epochs
from resurge.runtime.driver.membership import Membership
from resurge.runtime.driver.options import GIVE_UP, RunOptions, checkpoint_rule, scale_bounds
from resurge.runtime.driver.outputs import Outputs
from resurge.runtime.driver.request_watch import RequestWatch
from resurge.runtime.driver.resume import Resumption, resumption
from resurge.runtime.driver.runner import Runner
from resurge.runtime.driver.scaling import Scaler
from resurge.runtime.driver.sources import Sources
from resurge.runtime.driver.versions import Versions
from resurge.runtime.worker.level import JobCode
from resurge.storage.durable import DurableStore
from resurge.storage.job_store import claim
from resurge.storage.journal import CheckpointRefused, Journal
from resurge.storage.node_store import job_name
from resurge.telemetry.events import Event, JobStopped, NodeJoined, Warned
from resurge.telemetry.log import TelemetryLog

POLL_S = 0.1
"""How often the driver looks who is there while it waits."""


class Engine:
    """Runs one topology; `step` runs one epoch, `run` runs until stopped."""

    def __init__(
        self,
        topology: Topology,
        runner: Runner,
        options: RunOptions,
        telemetry: TelemetryLog | None = None,
        scaler: Scaler | None = None,
    ) -> None:
        if options.scale is not None and scaler is None:
            raise JobError("a job with scale MIN..MAX needs somebody who starts and ends nodes; give the engine a scaler")
        self.topology = topology
        self.runner = runner
        self.options = options
        self.scaler = scaler
        self.telemetry = telemetry or TelemetryLog()
        self.program = compile_topology(topology, chained=self._is_chained())
        self.graph = partition_graph(self.program)
        self.copying = options.copying({partition.operator for partition in self.graph.upstream})
        self.store = DurableStore(options.url())
        self.journal = Journal(self.store)
        self.outputs = Outputs(topology)
        self.stopping = threading.Event()
        self._edge: Edge | None = None
        self._requests: RequestWatch | None = None
        self._state: JobState | None = None
        self._broken: BaseException | None = None
        self._recorder: InputRecorder | None = None
        self._told: queue.SimpleQueue[Input | Attempt] = queue.SimpleQueue()
        self._answers: deque[Input] = deque()

    def _is_chained(self) -> bool:
        """Chains of operators need their partitions together, so they are for a single node only."""
        return self.options.chained and len(self.runner.members()) <= 1 and not self.runner.is_concurrent

    @property
    def state(self) -> JobState:
        """What the coordinator knows."""
        if self._state is None:
            raise JobError("the job has not been started; call start() first")
        return self._state

    @property
    def edge(self) -> Edge:
        """What carries out the coordinator's commands."""
        if self._edge is None:
            raise JobError("the job has not been started; call start() first")
        return self._edge

    @property
    def recovery(self) -> RecoveryState:
        """Where every partition stands."""
        return self.state.recovery

    @property
    def job(self) -> str:
        """The name of the job's folder on every node."""
        return self.edge.frame.job

    @property
    def is_started(self) -> bool:
        """Whether the journal has been read and the coordinator runs."""
        return self._state is not None

    # The beginning

    def start(self) -> None:
        """Take the job over, restore its state and bring it to where the last driver was."""
        self.membership = Membership(self.runner, self.options)
        job = claim(self.store, self.topology)
        self.journal.read()
        name = job_name(job.id, self.journal.take_over(), self.options.local_root)
        self._requests = RequestWatch(self.store.url, self.journal.generation, self.ask)
        self.telemetry.listeners.append(self._requests.listen)
        if self.scaler is not None:
            self.telemetry.listeners.append(self._tell_scaler)
        found = resumption(self.store, self.journal.records(), self.graph.upstream.keys())
        sources = Sources(self.topology, self.store)
        sources.begin(self.runner)
        self.outputs.open(job, found.committed_epoch)
        self.outputs.show_again(self.store, found.records)
        self.runner.listen(self.telemetry.write)
        self.runner.install(name, JobCode(self.program, sources.readers, self.outputs.sinks))
        self._edge = self._resumed_edge(name, found, sources)
        self._state = self._first_state(found)
        if self.options.input_log is not None:
            self._recorder = InputRecorder(self.options.input_log, lambda said: self.telemetry.write(Warned(clock_s(), said)))
            self._recorder.began(clock_s(), self._state)
        self._edge.respond = self._requests.respond
        self._requests.start()
        self._instruct(inputs.Start())

    def _resumed_edge(self, name: str, found: Resumption, sources: Sources) -> Edge:
        """What the last driver left, as the edge keeps it."""
        options = self.options
        names = [str(partition) for partition in self.graph.upstream]
        checkpoints = Checkpoints(self.store, self.journal, options.checkpoints_kept, names, list(reversed(found.published)))
        versions = Versions(self.program)
        for manifest in found.manifests:
            versions.restore_from(manifest.epoch, manifest.cohorts)
        ledger = Ledger(sources, {plan.epoch: plan for plan in found.planned})
        folder = f"{options.local_root}/resurge-{name}"
        frame = JobFrame(self.program, name, folder, self.store.url, options.local_limit_bytes)
        kept = Kept(self.journal, checkpoints, sources, self.outputs, ledger, versions)
        edge = Edge(frame, kept, self.membership, self.telemetry, self._tell)
        edge.scaler = self.scaler
        edge.reached |= found.reached
        edge.watermarks_us = dict(found.watermarks_us)
        for plan in found.planned:
            edge.watermarks_us = ledger.closing_us[plan.epoch] = found.committed[plan.epoch].watermarks_us
            edge.reached |= {source: end for source, (_, end) in plan.offsets.items()}
        return edge

    def _first_state(self, found: Resumption) -> JobState:
        options, measured = self.options, found.costs
        published, by_sources = shown_epochs(list(self.graph.upstream), found.records, found.cuts)
        costs = {partition: measured[str(partition)] for partition in self.graph.upstream if str(partition) in measured}
        known = Found(
            found.cuts,
            found.committed_epoch,
            published,
            by_sources,
            {plan.epoch: plan.arrival_s for plan in found.planned},
            costs=costs,
            rows_read={epoch: commit.rows_read for epoch, commit in found.committed.items()},
            gaps={Partition.parse(name): gap for name, gap in found.gaps.items()},
            drained=frozenset() if options.uses_drained else found.drained,
        )
        settings = Settings(
            options.interval_s,
            *checkpoint_rule(options.checkpoint_interval),
            options.max_rows_per_epoch,
            options.back_pressure,
            options.headroom,
            options.buffer_limit_bytes,
            options.always_buffers,
            self.runner.is_concurrent,
            POLL_S,
            saves_partially=True,
            balances=options.balance == "auto",
            most_epochs_kept=options.most_epochs_kept,
            gives_up=options.when_too_far_behind == GIVE_UP,
            scale=scale_bounds(options.scale),
            copying=self.copying,
        )
        strategy = Strategy(options.strategy, correlated_from=options.correlated_from, overfills_at_last=True)
        return first_state(settings, self._description(found), strategy, self.graph, self.membership.first(), known)

    def _description(self, found: Resumption) -> Description:
        topology = self.topology
        return Description(
            topology.name,
            self.runner.master,
            self.journal.generation,
            {query.name: query.priority for query in topology.queries.values()},
            topology.key_groups,
            output_partitions(self.program),
            job_events.described(clock_s(), topology),
            tuple(found.warnings),
        )

    # Inputs

    def _tell(self, event: Input | Attempt) -> None:
        """Queue an input, or a background job that has ended; answers to commands come before what other threads tell."""
        if isinstance(event, Attempt):
            self._told.put(event)
        else:
            self._answers.append(event)

    def ask(self, asked: Ask) -> None:
        """A user asks for something; from any thread. The answer is written where requests are."""
        self._told.put(Requested(asked))

    def _tell_scaler(self, event: Event) -> None:
        if isinstance(event, NodeJoined) and self.scaler is not None:
            self.scaler.joined()

    def _instruct(self, asked: Instruction) -> None:
        """Go on until a request is done."""
        if self._broken is not None:
            raise self._broken
        self._handle(Requested(asked))
        while not self.state.is_over:
            self._next()
            if (failure := self.state.failure) is not None:
                if failure.kind != CheckpointDamagedError.__name__:
                    self._raise(failure)
                self._go_back(failure.message)

    def _raise(self, failure: Failure) -> None:
        if failure.kind == StorageError.__name__:
            # A driver that takes over removes what this one kept on the machine.
            self.journal.refuse_superseded()
        if (cause := self.edge.causes.get(failure)) is not None:
            raise cause
        raise_failure(failure.kind, failure.message)

    def _go_back(self, reason: str) -> None:
        """A file of the newest checkpoint is damaged: log that it is not to be used, and recover all from the one before."""
        edge, before = self.edge, self.state
        edge.join()
        damaged = edge.checkpoints.damaged(reason)
        self.journal.append(CheckpointRefused(damaged.epoch, damaged.manifest, reason))
        found = resumption(self.store, self.journal.records(), self.graph.upstream.keys())
        self._edge = self._resumed_edge(edge.frame.job, found, edge.sources)
        # No version or buffer is used again: their files are removed as those of nobody.
        self._edge.versions.files = edge.versions.files
        self._edge.respond = edge.respond
        if before.pending is not None:
            self._edge.ledger.planned[before.pending.epoch] = edge.ledger.planned[before.pending.epoch]
        self._answers.clear()
        self._state, wanted = went_back(before, self._first_state(found), clock_s())
        if self._recorder is not None:
            self._recorder.began(clock_s(), self._state)
        self._carry_out(wanted)
        self._answers.append(inputs.Tick())

    def _next(self) -> None:
        """Handle the next input: a stop, answers, the job that all wait for, then what happened and who is there; else wait."""
        if self.stopping.is_set() and not self.state.goal.is_stopping:
            self._handle(Requested(inputs.Stop()))
        elif self._answers:
            self._handle(self._answers.popleft())
        elif (ended := self._foreground_ended()) is not None:
            if ended.failure is not None:
                # Spark may have failed because of a node that is gone: then the attempt is void.
                self.observe()
            # Background jobs that ended meanwhile are committed with this one, before anything new is decided.
            while not self._told.empty():
                self._handle(self._read(self._told.get()))
            self._handle(ended)
            self.observe()
        else:
            event = self._waited()
            self.observe()
            if event is not None:
                self._handle(event)

    def _foreground_ended(self) -> JobEnded | None:
        try:
            return self.edge.run_foreground()
        except BaseException as error:
            # The job's end will never be told: nothing can follow.
            self._broken = error
            raise

    def _waited(self) -> Input | None:
        """What other threads tell, or that it is time; None after a while without either."""
        wake_s = self.state.wake_s
        wait_s = POLL_S if wake_s is None else min(POLL_S, max(0.0, wake_s - clock_s()))
        try:
            return self._read(self._told.get(timeout=wait_s) if wait_s > 0 else self._told.get_nowait())
        except queue.Empty:
            return inputs.Tick() if wake_s is not None and clock_s() >= wake_s else None

    def _read(self, told: Input | Attempt) -> Input:
        return self.edge.ended(told) if isinstance(told, Attempt) else told

    def observe(self) -> None:
        """See which nodes have gone or come."""
        changed = self.membership.changed()
        if changed is not None:
            self._handle(changed)

    def _handle(self, event: Input) -> None:
        self._carry_out(self._decided(event))

    def _decided(self, event: Input) -> tuple[Command, ...]:
        """Let the coordinator handle an input, and record it."""
        now_s = clock_s()
        self._state, wanted = handle(self.state, event, now_s)
        if self._recorder is not None:
            self._recorder.handled(now_s, event, wanted, self._state)
        return wanted

    def _carry_out(self, wanted: tuple[Command, ...]) -> None:
        for command in wanted:
            try:
                self.edge.carry_out(command, self.state)
            except BaseException as error:
                self._failed(command, error)
                raise
        if wanted:
            self.edge.settled(self.state)

    def _failed(self, command: Command, error: BaseException) -> None:
        """Nothing that follows a command that failed may happen; but sources that failed can be asked again."""
        failure = Failure(type(error).__name__, redacted(str(error)))
        self._decided(CommandFailed(getattr(command, "number", 0), failure))
        if not isinstance(command, Poll):
            self._broken = error

    # Wishes

    def run(self, epochs: int | None = None, *, until_idle: bool = False, drain: bool = False) -> None:
        """Run until `stop`, for a number of epochs, or until there is no input; `drain` closes all windows at the end."""
        self._instruct(inputs.RunEpochs(epochs, until_idle, drain))

    def step(self, *, drain: bool = False) -> bool:
        """Run the next epoch if there is input; False if there was none."""
        head = self.recovery.head
        self._instruct(inputs.TakeEpoch(drain))
        return self.recovery.head > head

    def finish_recovery(self) -> None:
        """Wait until everything is live again."""
        self._instruct(inputs.FinishRecovery())

    def checkpoint(self) -> None:
        """Save every partition's state, if all are live."""
        self._instruct(inputs.SaveAll())

    def stop(self) -> None:
        """Ask the driver to end after the current epoch; from any thread, or from a signal handler."""
        self.stopping.set()
        self._told.put(inputs.Tick())

    # The end

    def close(self, reason: str = "") -> None:
        """Checkpoint what the last epochs changed, unless the job failed, and let go of everything."""
        try:
            if not reason and self.is_started and self.options.has_checkpoints and self.recovery.capacity:
                self.checkpoint()
        finally:
            if self._requests is not None:
                self._requests.close()
            if self._edge is not None:
                self._edge.let_go()
            else:
                self.runner.close()
            if self._recorder is not None:
                self._recorder.close(clock_s(), self.state)
            self.telemetry.write(JobStopped(clock_s(), self.recovery.head if self.is_started else 0, reason))


def run_until_done(engine: Engine, *, epochs: int | None = None, until_idle: bool = False, drain: bool = False) -> None:
    """Start, run and close an engine, whatever happens in between."""
    try:
        engine.start()
        engine.run(epochs, until_idle=until_idle, drain=drain)
    except (ResurgeError, KeyboardInterrupt) as error:
        engine.close(str(error) or type(error).__name__)
        raise
    engine.close()
