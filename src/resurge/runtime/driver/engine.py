"""The epoch loop: log what an epoch reads, run it as one Spark job, log its commit, show its output, checkpoint."""

import hashlib
import secrets
import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from resurge.connectors.contracts import Offset, Sink, StagedPart
from resurge.errors import JobError, ResurgeError
from resurge.model.names import KeyGroup, Partition
from resurge.model.topology import Topology
from resurge.operators.program import compile_topology
from resurge.protocols.checkpoint import CheckpointRecord, is_due, retention
from resurge.protocols.epoch import Pace, observed, row_limit, wait_s
from resurge.runtime.driver.failures import raise_failure
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.resume import Resumption, resumption
from resurge.runtime.driver.runner import Runner
from resurge.runtime.driver.sources import Sources
from resurge.runtime.storage import checkpoint_store
from resurge.runtime.storage.checkpoint_store import CheckpointManifest
from resurge.runtime.storage.durable import DurableStore
from resurge.runtime.storage.job_store import claim
from resurge.runtime.storage.journal import CheckpointPublished, EpochCommitted, EpochPlanned, Journal
from resurge.runtime.storage.runs import SavedState
from resurge.runtime.worker.level import JobCode
from resurge.runtime.worker.messages import EpochWork, JobPlan, PartitionReport, PartitionWork, SlotReport, SlotWork, Split
from resurge.runtime.worker.packets import merge_maxima
from resurge.telemetry.events import CheckpointFinished, EpochFinished, JobStarted, JobStopped, Warned
from resurge.telemetry.log import TelemetryLog

END_OF_TIME_US = 2**62


@dataclass
class PartitionState:
    """Where a partition's newest version is: a local segment of its node, or a checkpoint, or nowhere (empty)."""

    segment: str | None = None
    segments: tuple[str, ...] = ()
    restore: SavedState | None = None
    state_rows: int = 0
    state_bytes: int = 0


@dataclass
class Progress:
    """How far the job is."""

    epoch: int = 0
    reached: dict[str, Offset] = field(default_factory=dict)
    watermarks_us: dict[str, int] = field(default_factory=dict)
    last_checkpoint: int = 0
    pace: Pace = field(default_factory=Pace)


class Engine:
    """Runs one topology; `step` runs one epoch, `run` runs until stopped."""

    def __init__(self, topology: Topology, runner: Runner, options: RunOptions, telemetry: TelemetryLog | None = None) -> None:
        self.topology = topology
        self.runner = runner
        self.options = options
        self.telemetry = telemetry or TelemetryLog()
        self.program = compile_topology(topology, chained=options.chained)
        self.store = DurableStore(options.url())
        self.journal = Journal(self.store)
        self.job = ""
        self.progress = Progress()
        self.published: list[CheckpointRecord] = []
        self.partitions: dict[Partition, PartitionState] = {}
        self.expired: dict[str, list[str]] = {}
        self.stopping = threading.Event()
        self.sinks: dict[str, Sink] = {query.name: query.sink for query in topology.queries.values()}

    def start(self) -> None:
        """Take the job over, restore its state and bring it to where the last driver was."""
        claim(self.store, self.topology)
        self.journal.read()
        generation = self.journal.take_over()
        self._name_job(generation)
        found = resumption(self.store, self.journal.records())
        self.sources = Sources(self.topology, self.store)
        for query, sink in self.sinks.items():
            sink.open(query, self.topology.shapes[self.topology.queries[query].operator].schema)
            sink.clean(query, found.committed_epoch)
        self.runner.install(self.job, JobCode(self.program, self.sources.readers, self.sinks))
        self._adopt(found)
        self.telemetry.write(
            JobStarted(
                time.time(),
                self.topology.name,
                self.journal.generation,
                self.runner.master,
                sorted(set(self.runner.slots())),
                {query.name: query.priority for query in self.topology.queries.values()},
                self.topology.key_groups,
                found.committed_epoch,
                found.checkpoint_epoch,
            )
        )
        for warning in found.warnings:
            self.telemetry.write(Warned(time.time(), warning))
        for planned in found.planned:
            self._replay(planned, found)

    def _name_job(self, generation: int) -> None:
        """Name this run, and remove what killed drivers of the same job left in the local store of this machine."""
        place = hashlib.sha256(self.store.url.encode()).hexdigest()[:10]
        for left in Path(self.options.local_root).glob(f"resurge-{place}-*"):
            shutil.rmtree(left, ignore_errors=True)
        self.job = f"{place}-{generation}"

    def _adopt(self, found: Resumption) -> None:
        checkpoint = found.checkpoint
        self.published = list(reversed(found.published))
        self.progress.epoch = self.progress.last_checkpoint = found.checkpoint_epoch
        self.progress.reached = self.sources.initial() | found.reached
        self.progress.watermarks_us = dict(checkpoint.watermarks_us) if checkpoint else {}
        for name in self.program.partitioned_operators():
            for group in range(self.topology.key_groups):
                saved = checkpoint.partitions.get(f"{name}/{group}") if checkpoint else None
                self.partitions[Partition(name, KeyGroup(group))] = PartitionState(restore=saved)

    def _replay(self, planned: EpochPlanned, found: Resumption) -> None:
        """Run a logged epoch again; output that was committed is not shown again, but for the last, which may not have been."""
        committed = planned.epoch in found.committed
        is_last = planned.epoch == found.committed_epoch
        self._run_epoch(planned, show=not committed or is_last, is_committed=committed)

    def step(self, *, drain: bool = False) -> bool:
        """Run the next epoch if there is input; False if there was none."""
        progress = self.progress
        limit = row_limit(progress.pace, self.options.interval_s, self.options.max_rows_per_epoch)
        offsets = self.sources.next_offsets(progress.reached, limit)
        if not drain and all(start == end for start, end in offsets.values()):
            return False
        arrival_s = self.sources.arrival_s(offsets)
        planned = EpochPlanned(progress.epoch + 1, offsets, dict(progress.watermarks_us), arrival_s, drain)
        self.journal.append(planned)
        self._run_epoch(planned, show=True, is_committed=False, limit=limit)
        return True

    def run(self, epochs: int | None = None, *, until_idle: bool = False, drain: bool = False) -> None:
        """Run until `stop`, for a number of epochs, or until there is no input; `drain` closes all windows at the end."""
        done = 0
        while not self.stopping.is_set() and (epochs is None or done < epochs):
            started = time.monotonic()
            if self.step():
                done += 1
            elif until_idle:
                break
            self.stopping.wait(wait_s(started, time.monotonic(), self.options.interval_s if not until_idle else 0.0))
        if drain and not self.stopping.is_set():
            self.step(drain=True)

    def stop(self) -> None:
        """Ask the loop to end after the epoch in hand."""
        self.stopping.set()

    def close(self, reason: str = "") -> None:
        """Checkpoint what the last epochs changed, unless the job failed, and let go of everything."""
        try:
            if not reason and self.options.checkpoint_interval and self.progress.epoch > self.progress.last_checkpoint:
                self.checkpoint()
        finally:
            self.sources.stop()
            self.runner.close()
            shutil.rmtree(self._local_folder(), ignore_errors=True)
            self.telemetry.write(JobStopped(time.time(), self.progress.epoch, reason))

    def _run_epoch(self, planned: EpochPlanned, *, show: bool, is_committed: bool, limit: int | None = None) -> None:
        started = time.monotonic()
        checkpoint = is_due(planned.epoch, self.options.checkpoint_interval, self.progress.last_checkpoint)
        closing = dict.fromkeys(self.sources.readers, END_OF_TIME_US) if planned.drain else None
        work = EpochWork(planned.epoch, planned.watermarks_us, closing, show)
        reports = self._run_job([work], self.sources.splits(planned), checkpoint)
        parts = [part for report in reports for part in report.parts]
        self._advance(planned, reports)
        if not is_committed:
            self.journal.append(EpochCommitted(planned.epoch, self.progress.watermarks_us, parts))
        self._show(parts)
        self._tell(planned, reports, parts, time.monotonic() - started, limit, is_committed)
        if checkpoint:
            self._publish(planned.epoch, reports)

    def _run_job(self, epochs: list[EpochWork], splits: list[Split], checkpoint: bool) -> list[SlotReport]:
        plan = self._plan(epochs, splits, checkpoint)
        reports = self.runner.run(plan)
        failed = [report.failure for report in reports if report.failure is not None]
        if failed:
            for report in reports:
                self._discard(report.parts)
            raise_failure(*failed[0])
        for node in {slot.node for slot in plan.slots}:
            self.expired.pop(node, None)
        return reports

    def _plan(self, epochs: list[EpochWork], splits: list[Split], checkpoint: bool) -> JobPlan:
        nodes = self.runner.slots()
        if not nodes:
            raise JobError("there is no executor to run on; expected at least one: start a worker and run again")
        count, key_groups = len(nodes), self.topology.key_groups
        route = [group * count // key_groups for group in range(key_groups)]
        work: list[list[PartitionWork]] = [[] for _ in nodes]
        for partition, state in self.partitions.items():
            item = PartitionWork(partition.operator, partition.key_group, state.segment, state.restore)
            work[route[partition.key_group]].append(item)
        shares: list[list[Split]] = [[] for _ in nodes]
        for index, split in enumerate(splits):
            shares[index * count // len(splits)].append(split)
        expired = dict(self.expired)
        slots = [SlotWork(node, shares[i], work[i], expired.pop(node, [])) for i, node in enumerate(nodes)]
        return JobPlan(
            self.job,
            secrets.token_hex(4),
            epochs[-1].epoch if epochs else self.progress.epoch,
            epochs,
            slots,
            dict.fromkeys(self.program.partitioned_operators(), route),
            self._local_folder(),
            self.store.url,
            checkpoint,
        )

    def _local_folder(self) -> str:
        return f"{self.options.local_root}/resurge-{self.job}"

    def _advance(self, planned: EpochPlanned, reports: list[SlotReport]) -> None:
        """The epoch ran: its versions are the partitions' versions now."""
        before = {name for state in self.partitions.values() for name in state.segments}
        for report in reports:
            for partition in report.partitions:
                self._adopt_version(partition)
        needed = {name for state in self.partitions.values() for name in state.segments}
        gone = sorted(before - needed)
        for node in set(self.runner.slots()):
            self.expired.setdefault(node, []).extend(gone)
        maxima: dict[int, dict[str, int]] = {planned.epoch: dict(planned.watermarks_us)}
        for report in reports:
            merge_maxima(maxima, report.maxima_us)
        self.progress.watermarks_us = maxima[planned.epoch]
        self.progress.epoch = planned.epoch
        self.progress.reached |= {name: end for name, (_, end) in planned.offsets.items()}

    def _adopt_version(self, report: PartitionReport) -> None:
        state = self.partitions[Partition(report.operator, KeyGroup(report.key_group))]
        state.segment, state.segments, state.restore = report.segment, tuple(report.segments), None
        state.state_rows, state.state_bytes = report.state_rows, report.state_bytes

    def _show(self, parts: list[StagedPart]) -> None:
        by_query: dict[str, list[StagedPart]] = {}
        for part in parts:
            by_query.setdefault(part.query, []).append(part)
        for query, mine in by_query.items():
            self.sinks[query].publish(mine)

    def _discard(self, parts: list[StagedPart]) -> None:
        for part in parts:
            self.sinks[part.query].discard([part])

    def checkpoint(self) -> None:
        """A job without epochs, which only saves every partition's state."""
        reports = self._run_job([], [], True)
        for report in reports:
            for partition in report.partitions:
                self._adopt_version(partition)
        self._publish(self.progress.epoch, reports)

    def _publish(self, epoch: int, reports: list[SlotReport]) -> None:
        started = time.monotonic()
        saved = {
            f"{partition.operator}/{partition.key_group}": partition.checkpoint
            for report in reports
            for partition in report.partitions
            if partition.checkpoint is not None
        }
        missing = [str(partition) for partition in self.partitions if str(partition) not in saved]
        if missing:
            raise JobError(f"the checkpoint of epoch {epoch} lacks {', '.join(missing[:5])}; expected every partition")
        manifest = CheckpointManifest(epoch, self.journal.generation, self.progress.watermarks_us, self.progress.reached, saved)
        record = checkpoint_store.publish(self.store, manifest)
        self.journal.append(CheckpointPublished(record.epoch, record.manifest, record.checksum))
        self.published.append(record)
        self.progress.last_checkpoint = epoch
        self._forget(manifest)
        self.sources.commit(self.progress.reached)
        self.telemetry.write(CheckpointFinished(time.time(), epoch, time.monotonic() - started))

    def _forget(self, newest: CheckpointManifest) -> None:
        keep = retention(self.published, self.options.checkpoints_kept)
        self.journal.trim(keep.first_epoch)
        manifests = [newest if r.epoch == newest.epoch else checkpoint_store.read_manifest(self.store, r) for r in keep.kept]
        checkpoint_store.forget(self.store, keep.dropped, manifests, newest.epoch)
        self.published = list(reversed(keep.kept))

    def _tell(
        self,
        planned: EpochPlanned,
        reports: list[SlotReport],
        parts: list[StagedPart],
        took_s: float,
        limit: int | None,
        replayed: bool,
    ) -> None:
        now = time.time()
        rows_read = sum(report.rows_read for report in reports)
        rows = dict.fromkeys(self.topology.queries, 0)
        for part in parts:
            rows[part.query] += part.rows
        late: dict[str, int] = {}
        for report in reports:
            for partition in report.partitions:
                if partition.late_rows:
                    late[partition.operator] = late.get(partition.operator, 0) + partition.late_rows
        if not replayed:
            self.progress.pace = observed(self.progress.pace, rows_read, took_s, self.options.interval_s)
        self.telemetry.write(
            EpochFinished(
                now,
                planned.epoch,
                rows_read,
                took_s,
                planned.arrival_s,
                rows,
                {} if replayed else dict.fromkeys(rows, now - planned.arrival_s),
                sum(state.state_rows for state in self.partitions.values()),
                sum(state.state_bytes for state in self.partitions.values()),
                late,
                sum(report.bad_rows for report in reports),
                self.sources.lag_rows(self.progress.reached),
                limit,
                {f"level {level}": sum(r.cpu_s for r in reports if r.level == level) for level in range(self.program.levels)},
                replayed,
            )
        )


def run_until_done(engine: Engine, *, epochs: int | None = None, until_idle: bool = False, drain: bool = False) -> None:
    """Start, run and close an engine, whatever happens in between."""
    engine.start()
    try:
        engine.run(epochs, until_idle=until_idle, drain=drain)
    except (ResurgeError, KeyboardInterrupt) as error:
        engine.close(str(error) or type(error).__name__)
        raise
    engine.close()
