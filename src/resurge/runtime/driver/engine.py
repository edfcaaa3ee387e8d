"""The epoch loop: log what an epoch reads, run it as one Spark job, log its commit, show its output, checkpoint.

Every run begins like a recovery: all partitions are down at the last global checkpoint, come back as capacity allows, catch
up with the journal, and then take new epochs. So a restarted driver, a lost node and a first start are one mechanism.
"""

import secrets
import threading
import time
from collections.abc import Callable, Mapping

from resurge.connectors.contracts import Offset
from resurge.coordinator.scheduling import everything_down, is_same_question, schedule
from resurge.errors import EngineError, JobError, ResurgeError
from resurge.model.names import NodeId
from resurge.model.topology import Topology
from resurge.operators.program import compile_topology
from resurge.protocols import recovery, retrying
from resurge.protocols.checkpoint import is_due
from resurge.protocols.epoch import Pace, is_full, observed, row_limit
from resurge.protocols.recovery import Facts, Phase
from resurge.runtime.driver import loop
from resurge.runtime.driver.catching_up import CatchingUp
from resurge.runtime.driver.checkpointing import Checkpoints, saved_cohorts
from resurge.runtime.driver.failures import raise_failures
from resurge.runtime.driver.going_back import FLIGHT_S, undamaged
from resurge.runtime.driver.graphs import partition_graph
from resurge.runtime.driver.job_plans import JobFrame, Work, job_plan, live_work
from resurge.runtime.driver.ledger import Ledger, shown_epochs
from resurge.runtime.driver.membership import Membership
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.outputs import Outputs, without_rows
from resurge.runtime.driver.resume import Resumption, resumption
from resurge.runtime.driver.runner import NodesLostError, Runner
from resurge.runtime.driver.sources import Sources
from resurge.runtime.driver.story import Story
from resurge.runtime.driver.versions import Versions
from resurge.runtime.worker.level import JobCode
from resurge.runtime.worker.messages import EpochWork, JobPlan, SlotReport
from resurge.runtime.worker.packets import merge_maxima
from resurge.storage.checkpoint_store import CheckpointManifest
from resurge.storage.durable import DurableStore
from resurge.storage.job_store import claim
from resurge.storage.journal import EpochCommitted, EpochPlanned, Journal
from resurge.storage.node_store import job_name, remove_job
from resurge.telemetry.events import JobStopped
from resurge.telemetry.log import TelemetryLog

POLL_S = loop.POLL_S


class Engine:
    """Runs one topology; `step` runs one epoch, `run` runs until stopped."""

    def __init__(self, topology: Topology, runner: Runner, options: RunOptions, telemetry: TelemetryLog | None = None) -> None:
        self.topology = topology
        self.runner = runner
        self.options = options
        self.telemetry = telemetry or TelemetryLog()
        self.program = compile_topology(topology, chained=self._is_chained())
        self.graph = partition_graph(self.program)
        self.store = DurableStore(options.url())
        self.journal = Journal(self.store)
        self.checkpoints = Checkpoints(self.store, self.journal, options.checkpoints_kept)
        self.outputs = Outputs(topology)
        self.versions = Versions(self.program)
        self.stopping = threading.Event()
        self.pace = Pace()
        self.reached: dict[str, Offset] = {}
        self.watermarks_us: dict[str, int] = {}
        self.pending: EpochPlanned | None = None
        self.job = ""
        self.behind = CatchingUp(self)
        self.asked: Facts | None = None
        self.epoch_s = self.attempt_s = 0.0
        self.limit: int | None = None
        self.is_full = False
        self.failures = 0
        self.is_started = False

    def _is_chained(self) -> bool:
        """Chains of operators need their partitions together, so they are for a single node only."""
        return self.options.chained and len(self.runner.members()) <= 1 and not self.runner.is_concurrent

    def start(self) -> None:
        """Take the job over, restore its state and bring it to where the last driver was."""
        job = claim(self.store, self.topology)
        self.journal.read()
        self.job = job_name(job.id, self.journal.take_over(), self.options.local_root)
        found = resumption(self.store, self.journal.records())
        self.sources = Sources(self.topology, self.store)
        self.sources.begin(self.runner)
        self.outputs.open(job, found.committed_epoch)
        self.outputs.show_again(self.store, found.records)
        self.runner.listen(self.telemetry.write)
        self.runner.install(self.job, JobCode(self.program, self.sources.readers, self.outputs.sinks))
        self.resume(found)
        self.story = Story(self.telemetry, self.program, self.ledger)
        self.story.started(self, found)
        self.is_started = True
        undamaged(self, self._catch_up_with_journal)

    def resume(self, found: Resumption) -> None:
        """Begin where the journal says: every partition is down at the checkpoint."""
        checkpoint = found.checkpoint
        self.checkpoints.published = list(reversed(found.published))
        self.reached = self.sources.initial() | found.reached
        self.watermarks_us = dict(checkpoint.watermarks_us) if checkpoint else {}
        self.versions.restore_from(checkpoint.cohorts if checkpoint else ())
        shown, by_sources = shown_epochs(list(self.graph.upstream), found.records, found.checkpoint_epoch)
        self.ledger = Ledger(self.sources, {plan.epoch: plan for plan in found.planned}, {}, by_sources)
        for plan in found.planned:
            self.watermarks_us = self.ledger.closing_us[plan.epoch] = found.committed[plan.epoch].watermarks_us
            self.reached |= {name: end for name, (_, end) in plan.offsets.items()}
        self.membership = Membership(self.runner, self.options)
        facts = everything_down(self.graph, {}, found.checkpoint_epoch, found.committed_epoch, shown)
        self.facts = self.membership.observed(facts)
        if checkpoint is not None:
            self.membership.costs = {p: checkpoint.costs[str(p)] for p in self.graph.upstream if str(p) in checkpoint.costs}

    def _catch_up_with_journal(self) -> None:
        """Replay the committed epochs."""
        self.wait_for_nodes()
        self.observe()
        while self.catching_up() and not self.facts.live:
            self.catch_up()

    # Nodes

    def observe(self) -> None:
        """See which nodes have gone or come, and let come back what can."""
        before = self.facts
        self.facts = self.membership.observed(self.facts)
        self._after_change(before)

    def _lost(self, nodes: frozenset[NodeId]) -> None:
        before = self.facts
        self.facts = self.membership.lost(self.facts, nodes)
        self._after_change(before)

    def _after_change(self, before: Facts) -> None:
        gone = frozenset(before.capacity) - frozenset(self.facts.capacity)
        if gone:
            self.versions.forget_nodes(gone)
        down = [p for p, known in self.facts.standing.items() if known.phase is Phase.DOWN]
        self.versions.forget_partitions(down)
        self.story.changed(before, self.facts)
        if self.facts.of_phase(Phase.DOWN, Phase.STALLED) and self.facts.capacity:
            asked = self.membership.with_costs(self.facts)
            if is_same_question(asked, self.asked):
                return
            started = time.monotonic()
            planned = schedule(asked, self.membership.strategy)
            self.asked = asked if planned.standing is asked.standing else None
            self.story.planned(self.facts, planned, time.monotonic() - started, self.membership.strategy.name)
            self.versions.forget_partitions(recovery.moved(self.facts, planned))
            self.facts = planned

    # Live epochs

    def step(self, *, drain: bool = False) -> bool:
        """Run the next epoch if there is input; False if there was none."""
        return undamaged(self, lambda: self._step(drain))

    def _step(self, drain: bool) -> bool:
        self.behind.land()
        self.observe()
        while self.behind.is_waited_for():
            self.catch_up(0.0)
            self.observe()
        self.behind.go_on()
        if self.pending is None:
            configured = self.options.max_rows_per_epoch
            self.limit = row_limit(self.pace, configured) if self.options.back_pressure else configured
            offsets = self.sources.next_offsets(self.reached, self.limit)
            if not drain and all(start == end for start, end in offsets.values()):
                self.story.committed(self.facts)
                return False
            arrival_s = self.sources.arrival_s(offsets)
            planned = EpochPlanned(
                self.facts.head + 1, offsets, dict(self.watermarks_us), arrival_s, drain, self.journal.generation
            )
            self.journal.append(planned)
            self.ledger.planned[planned.epoch] = self.pending = planned
        self._run_pending()
        return True

    def _run_pending(self) -> None:
        """Run the logged epoch with the partitions that are live; commit, show, and checkpoint if due."""
        if self.pending is None:
            return
        planned, started = self.pending, time.monotonic()
        checkpoint, step = False, None

        def work() -> Work:
            nonlocal checkpoint, step
            due = is_due(planned.epoch, self.options.checkpoint_interval, self.facts.checkpoint)
            checkpoint = due and self.facts.is_whole
            chosen, step = self.behind.live_work(self.ledger.work(planned.epoch), checkpoint)
            return chosen

        reports = self.attempt(work)
        if step is not None:
            self.behind.commit_joined(step, reports, planned.epoch, time.monotonic() - started)
        self._commit(planned, reports)
        self.epoch_s = time.monotonic() - started
        # What others took of the past in the same job says nothing of what is waiting.
        rows = sum(report.rows_read for report in reports)
        self.is_full = step is None and (self.sources.is_capped or is_full(rows, self.limit))
        self._measure(reports, is_usual=step is None)
        self.story.epoch(self, planned, reports, self.epoch_s)
        if checkpoint:
            self._publish(planned.epoch, reports)

    def _commit(self, planned: EpochPlanned, reports: list[SlotReport]) -> None:
        maxima: dict[int, dict[str, int]] = {planned.epoch: dict(planned.watermarks_us)}
        for report in reports:
            merge_maxima(maxima, report.maxima_us)
        absent = [str(partition) for partition in self.graph.upstream if partition not in self.facts.live]
        parts = [part for report in reports for part in report.parts if part.epoch == planned.epoch]
        rows = self.outputs.kept(parts, self.journal)
        self.journal.append(EpochCommitted(planned.epoch, maxima[planned.epoch], without_rows(parts), absent, rows))
        self.outputs.show(parts)
        self.watermarks_us = self.ledger.closing_us[planned.epoch] = maxima[planned.epoch]
        self.reached |= {name: end for name, (_, end) in planned.offsets.items()}
        self.ledger.shown_by_sources = planned.epoch
        self.story.before = self.facts
        self.facts = recovery.epoch_done(self.facts, planned.epoch)
        self.pending = None

    def _measure(self, reports: list[SlotReport], *, is_usual: bool) -> None:
        """Learn what epochs and partitions cost; one beside which others caught up tells little, unless it was too long even so."""
        interval_s = self.options.interval_s
        if is_usual or self.attempt_s > interval_s:
            rows = sum(report.rows_read for report in reports)
            self.pace = observed(self.pace, rows, self.attempt_s, interval_s, is_whole=self.facts.is_whole)
        if is_usual:
            self.membership.measured(reports, max(interval_s, self.attempt_s))

    # Catching up

    def catching_up(self) -> bool:
        """Whether some partition is behind and on its way."""
        return bool(self.facts.of_phase(Phase.CATCHING_UP))

    def catch_up(self, budget_s: float | None = None) -> bool:
        """One bounded step for the partitions that are behind; False if there is no time for one now."""
        return undamaged(self, lambda: self.behind.step(budget_s))

    # Jobs

    def attempt(self, work: Callable[[], Work]) -> list[SlotReport]:
        """Run a job until an attempt succeeds; after a loss of nodes, or a failure of Spark, the work is decided anew."""
        while True:
            self.wait_for_nodes()
            began = time.monotonic()
            chosen = work()
            plan = self.planned(chosen, self.versions.expired())
            reports: list[SlotReport] = []
            try:
                reports = self.runner.run(plan)
                raise_failures(reports)
            except (NodesLostError, ResurgeError) as error:
                self.outputs.discard(reports)
                self.versions.abandoned(plan, self.facts.capacity)
                if isinstance(error, NodesLostError):
                    self._lost(error.nodes)
                elif isinstance(error, EngineError):
                    self.try_again(error)
                else:
                    raise
                continue
            self.attempt_s = time.monotonic() - began
            self.adopt(plan, chosen, reports)
            return reports

    def try_again(self, error: EngineError) -> None:
        """Spark failed at a job: pause, see who is there and go on, unless it has failed several times in a row."""
        self.failures += 1
        pause_s = retrying.pause_s(self.failures)
        if pause_s is None:
            raise error
        self.stopping.wait(pause_s)
        self.observe()

    def planned(self, chosen: Work, expired: Mapping[NodeId, list[str]]) -> JobPlan:
        """One attempt at some work, on the nodes that it needs."""
        slots = self.membership.slots(self.facts, chosen.nodes)
        plan = job_plan(self._frame(), slots, chosen, secrets.token_hex(4), expired, self.versions.checkpoint)
        self.versions.pin(plan)
        return plan

    def adopt(self, plan: JobPlan, chosen: Work, reports: list[SlotReport]) -> None:
        """A job succeeded: its versions are the newest, and what it buffered is known."""
        self.failures = 0
        self.versions.adopt(plan, reports)
        if chosen.buffered:
            self.versions.buffer(chosen.buffered, reports, chosen.producers())
        self.versions.keep_buffers_within(self.options.buffer_limit_bytes, self.behind.buffers_in_use())

    def wait_for_nodes(self) -> None:
        """Losing all nodes keeps the driver waiting, not dead."""
        told = False
        while not self.facts.capacity:
            if self.stopping.is_set():
                raise JobError("there is no node to run on and the job was asked to stop; run again when there are nodes")
            if not told:
                self.story.waiting(self.facts)
                told = True
            self.stopping.wait(POLL_S)
            self.observe()

    def _frame(self) -> JobFrame:
        return JobFrame(self.program, self.job, self._local_folder(), self.store.url, self.options.local_limit_bytes)

    def _local_folder(self) -> str:
        return f"{self.options.local_root}/resurge-{self.job}"

    # Output and checkpoints

    def checkpoint(self) -> None:
        """A job without epochs, which only saves every partition's state; only when all are live."""
        if not self.facts.is_whole or not self.facts.capacity:
            return

        def work() -> Work:
            live = live_work(self.facts, self.facts, self.versions, EpochWork(self.facts.head, {}), [], True)
            return Work(self.facts.head, [], [], live.partitions, {}, {}, True)

        reports = self.attempt(work)
        if self.facts.is_whole:
            self._publish(self.facts.head, reports)

    def _publish(self, epoch: int, reports: list[SlotReport]) -> None:
        started = time.monotonic()
        saved = saved_cohorts(reports, list(self.graph.upstream), epoch)
        costs = {str(partition): cost for partition, cost in self.membership.costs.items()}
        self.checkpoints.publish(
            CheckpointManifest(epoch, self.journal.generation, self.watermarks_us, self.reached, saved, costs)
        )
        before = self.facts
        self.facts = recovery.checkpointed(self.facts, epoch)
        self.versions.restore_from(saved)
        self.versions.drop_buffers()
        self.ledger.forget_before(epoch + 1)
        if self.checkpoints.oldest_reached:
            self.sources.commit(self.checkpoints.oldest_reached)
        self.outputs.forget(self.checkpoints.oldest_epoch)
        self.story.checkpointed(before, self.facts, time.monotonic() - started)

    # The loop

    def run(self, epochs: int | None = None, *, until_idle: bool = False, drain: bool = False) -> None:
        """Run until `stop`, for a number of epochs, or until there is no input; `drain` closes all windows at the end."""
        loop.run(self, epochs, until_idle=until_idle, drain=drain)

    def finish_recovery(self) -> None:
        """Wait until everything is live again."""
        loop.finish_recovery(self)

    def stop(self) -> None:
        """Ask the loop to end after the epoch in hand."""
        self.stopping.set()

    def close(self, reason: str = "") -> None:
        """Checkpoint what the last epochs changed, unless the job failed, and let go of everything."""
        try:
            if not reason and self.is_started and self.options.checkpoint_interval and self.facts.head > self.facts.checkpoint:
                self.checkpoint()
        finally:
            self._let_go()
            self.telemetry.write(JobStopped(time.time(), self.facts.head if self.is_started else 0, reason))

    def _let_go(self) -> None:
        """Release what was opened; a start that failed has opened only part of it."""
        self.behind.wait(FLIGHT_S)
        if self.is_started:
            self.sources.stop()
        self.runner.close()
        if self.job:
            remove_job(self._local_folder())


def run_until_done(engine: Engine, *, epochs: int | None = None, until_idle: bool = False, drain: bool = False) -> None:
    """Start, run and close an engine, whatever happens in between."""
    try:
        engine.start()
        engine.run(epochs, until_idle=until_idle, drain=drain)
    except (ResurgeError, KeyboardInterrupt) as error:
        engine.close(str(error) or type(error).__name__)
        raise
    engine.close()
