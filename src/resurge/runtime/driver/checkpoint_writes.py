"""The checkpoint that is being written beside the epochs, from the job that takes it to its record in the journal."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec

from resurge.connectors.contracts import Offset
from resurge.coordinator.commands import WriteManifest
from resurge.coordinator.state import JobState
from resurge.errors import JobError, ProtocolError
from resurge.model.names import NodeId, Partition
from resurge.model.work import Job
from resurge.runtime.driver.checkpointing import Checkpoints, Manifest, described
from resurge.runtime.driver.versions import Versions
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.storage import paths
from resurge.storage.checkpoint_store import CheckpointManifest
from resurge.storage.runs import SavedCohort, durable_only

TAKEN, LOGGED = "the checkpoint that is being written", "the newest checkpoint"
"""For what local files stay, beside jobs."""


def in_a_thread(write: Callable[[], Manifest]) -> Future[Manifest]:
    """Let a manifest be written while epochs go on."""
    pool = ThreadPoolExecutor(1, "resurge-manifest")
    written = pool.submit(write)
    pool.shutdown(wait=False)
    return written


start: Callable[[Callable[[], Manifest]], Future[Manifest]] = in_a_thread
"""How writing a manifest begins; tests that count durable writes have another way."""


@dataclass
class Taking:
    """A checkpoint that is being written: its parts, by their segments, with the nodes that write them.

    `files` are what stays in local stores meanwhile. The sources had been read up to `reached` at the end of its epoch,
    when `state` was known of the job. Its `manifest` is written in the background as well.
    """

    attempt: str
    epoch: int
    parts: dict[str, NodeId]
    files: dict[NodeId, set[str]]
    written: dict[str, list[SavedCohort]] = field(default_factory=dict)
    absent: tuple[Partition, ...] = ()
    state: JobState | None = None
    manifest: Future[Manifest] | None = None
    watermarks_us: dict[str, int] = field(default_factory=dict)
    reached: dict[str, Offset] = field(default_factory=dict)

    @staticmethod
    def of(plan: JobPlan, reports: Iterable[SlotReport]) -> "Taking":
        """What the slots of a job began to write."""
        taking = Taking(plan.attempt, plan.epoch, {}, {})
        for report in reports:
            mine = [cohort for cohort in report.cohorts if not cohort.shadow and not cohort.copy]
            stray = [cohort for cohort in mine if cohort.cursor != plan.epoch]
            if stray:
                at = f"{stray[0].operator!r} at epoch {stray[0].cursor}"
                raise JobError(
                    f"the checkpoint of epoch {plan.epoch} has {at}; expected every partition that is live at its epoch"
                )
            if mine:
                node = NodeId(plan.slots[report.slot].node)
                taking.parts[report.segment] = node
                beside = (paths.local_taken(report.segment), paths.local_written(report.segment))
                taking.files.setdefault(node, set()).update(report.segments, beside)
            taking.reported(report)
        return taking

    def reported(self, report: SlotReport) -> None:
        """A slot says which parts are durable."""
        self.written |= {name: saved for name, saved in report.written.items() if name in self.parts}

    @property
    def is_durable(self) -> bool:
        """Whether all parts are."""
        return self.written.keys() >= self.parts.keys()

    def awaited(self, node: str) -> list[str]:
        """The parts that a node has not written yet."""
        return [name for name, owner in self.parts.items() if owner == node and name not in self.written]

    def manifest_of(self, generation: int, partitions: Iterable[Partition]) -> CheckpointManifest:
        """All of it, as the durable store keeps it."""
        absent = frozenset(self.absent)
        saved = self.cohorts(partition for partition in partitions if partition not in absent)
        manifest = CheckpointManifest(self.epoch, generation, self.watermarks_us, self.reached, saved)
        return manifest if self.state is None else described(manifest, self.state)

    def cohorts(self, wanted: Iterable[Partition]) -> list[SavedCohort]:
        """The states of all wanted partitions, as a manifest names them."""
        saved = [cohort for cohorts in self.written.values() for cohort in cohorts]
        found = {(cohort.operator, group) for cohort in saved for group in cohort.key_groups}
        missing = [str(partition) for partition in wanted if (partition.operator, partition.key_group) not in found]
        if missing:
            raise JobError(
                f"the checkpoint of epoch {self.epoch} lacks {', '.join(missing[:5])}; expected every partition that is live"
            )
        return [SavedCohort(cohort.operator, cohort.key_groups, durable_only(cohort.tables)) for cohort in saved]


class CheckpointWrites:
    """Takes a checkpoint with a job, lets the jobs that follow look for its parts, and writes its manifest in the background."""

    def __init__(self, checkpoints: Checkpoints, versions: Versions) -> None:
        self.checkpoints, self.versions = checkpoints, versions
        self.taking: Taking | None = None
        self._begun: dict[str, Taking] = {}
        self._logged: dict[str, NodeId] = {}

    def planned(self, job: Job, plan: JobPlan) -> JobPlan:
        """The plan of a job, with what its slots look for and learn."""
        taking = self.taking if job.awaits is not None else None
        if taking is None and not self._logged and job.epochs:
            return plan
        return _with_parts(plan, taking, self._logged, waits=not (job.epochs or job.looks))

    def durable(self, job: Job, plan: JobPlan, reports: Sequence[SlotReport]) -> str | None:
        """The job that took the checkpoint which is being written, if the reports of this one tell that all of it is durable."""
        if job.is_checkpoint:
            self._begun = {job.attempt: Taking.of(plan, reports)}
        elif job.awaits is not None and self.taking is not None:
            for report in reports:
                self.taking.reported(report)
        taking = self._begun.get(job.attempt, self.taking)
        if taking is None or not taking.is_durable:
            return None
        if job.epochs or job.looks:
            # Nobody waits for it: its manifest is written beside the next epochs too.
            if taking.manifest is None and taking is self.taking:
                taking.manifest = start(lambda: self._written(taking))
            if taking.manifest is None or not taking.manifest.done():
                return None
        return taking.attempt

    def adopted(self, job: Job, plan: JobPlan, state: JobState) -> None:
        """A job counts: what it took is the checkpoint that is being written, and its files stay."""
        if job.live_epoch is not None and any(slot.logged for slot in plan.slots):
            # All that are live have learnt it.
            self._logged = {}
            self.versions.pinned.pop(LOGGED, None)
        taking = self._begun.pop(job.attempt, None)
        if taking is None:
            return
        self.taking, taking.state = taking, state
        taking.absent = state.taken.absent if state.taken is not None else ()
        self.versions.pinned[TAKEN] = frozenset(file for files in taking.files.values() for file in files)
        for node, files in taking.files.items():
            self.versions.files.setdefault(node, set()).update(files)

    def reached(self, attempt: str, watermarks_us: Mapping[str, int], reached: Mapping[str, Offset]) -> None:
        """How far the job had come at the end of the epoch of a checkpoint, if this attempt took it."""
        if self.taking is not None and self.taking.attempt == attempt:
            self.taking.watermarks_us, self.taking.reached = dict(watermarks_us), dict(reached)

    def settled(self, state: JobState) -> None:
        """A checkpoint that is logged or given up needs no files any more."""
        if self.taking is not None and (state.taken is None or state.taken.attempt != self.taking.attempt):
            self.taking = None
            self.versions.pinned.pop(TAKEN, None)

    def finish(self, command: WriteManifest, state: JobState) -> None:
        """Have the manifest written, ready to be logged."""
        taking = self.taking
        if taking is None or taking.attempt != command.attempt:
            raise ProtocolError(f"the manifest of {command.attempt} is to be written; expected a checkpoint that it took")
        if taking.manifest is not None and taking.state is not None and taking.state.gaps == state.gaps:
            manifest, record = taking.manifest.result()
        else:
            # None was written, or one that does not say which partitions have been given up since.
            taking.state, taking.absent = state, command.absent
            manifest, record = self._written(taking)
        self.checkpoints.prepare(manifest, record)
        self._logged = taking.parts
        self.versions.pinned[LOGGED] = frozenset(map(paths.local_written, taking.parts))

    def _written(self, taking: Taking) -> Manifest:
        partitions = map(Partition.parse, self.checkpoints.partitions)
        return self.checkpoints.write(taking.manifest_of(self.checkpoints.journal.generation, partitions), taking.absent)


def _with_parts(plan: JobPlan, taking: Taking | None, logged: Mapping[str, NodeId], *, waits: bool) -> JobPlan:
    """The plan, in which the first slot of each node looks for what it writes, and all know what the newest checkpoint has."""
    first = {slot.node: index for index, slot in reversed(list(enumerate(plan.slots)))}
    by_node = {node: [name for name, owner in logged.items() if owner == node] for node in first}
    slots = [
        msgspec.structs.replace(
            slot,
            awaited=taking.awaited(slot.node) if taking is not None and first[slot.node] == index else [],
            logged=by_node[slot.node],
        )
        for index, slot in enumerate(plan.slots)
    ]
    return msgspec.structs.replace(plan, slots=slots, waits=waits)
