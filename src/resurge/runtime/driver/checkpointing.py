"""Publish checkpoints, and forget what they make needless."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from resurge.connectors.contracts import Offset
from resurge.errors import CorruptFileError, JobError
from resurge.model.names import Partition
from resurge.protocols.checkpoint import CheckpointRecord, Retention, retention
from resurge.runtime.worker.messages import SlotReport
from resurge.storage import checkpoint_store
from resurge.storage.checkpoint_store import CheckpointManifest
from resurge.storage.durable import DurableStore
from resurge.storage.journal import Journal
from resurge.storage.runs import SavedCohort


class Written(NamedTuple):
    """A manifest that is written: its record, what is kept with it, and the older manifests that are, if they can be read."""

    manifest: CheckpointManifest
    record: CheckpointRecord
    keep: Retention
    older: list[CheckpointManifest] | None


@dataclass
class Checkpoints:
    """The checkpoints of a job that are kept."""

    store: DurableStore
    journal: Journal
    kept: int
    partitions: Sequence[str]
    published: list[CheckpointRecord] = field(default_factory=list)
    oldest_reached: dict[str, Offset] = field(default_factory=dict)
    oldest_epoch: int = -1
    """No start goes back behind this checkpoint."""
    written: Written | None = None

    def write(self, manifest: CheckpointManifest, absent: Iterable[Partition] = ()) -> None:
        """Write the manifest, which lacks what was not live; it counts once the journal names it."""
        record = checkpoint_store.publish(self.store, manifest)._replace(absent=tuple(map(str, absent)))
        keep = retention([*self.published, record], self.kept, self.partitions)
        # Read before the journal names the new checkpoint: afterwards another driver may have taken over and removed them.
        self.written = Written(manifest, record, keep, self._older(keep.kept, record))

    def log(self) -> CheckpointManifest:
        """Name the manifest in the journal, which trims itself."""
        if self.written is None:
            raise JobError("a checkpoint is to be logged; expected its manifest to be written before")
        self.journal.publish(self.written.record, self.written.keep.first_epoch)
        self.published = list(reversed(self.written.keep.kept))
        return self.written.manifest

    def forget(self) -> None:
        """Remove what only older checkpoints need."""
        written, self.written = self.written, None
        if written is None or written.older is None:
            return
        manifests = [written.manifest, *written.older]
        for manifest in manifests:
            if manifest.epoch == written.keep.first_epoch - 1:
                self.oldest_reached, self.oldest_epoch = dict(manifest.reached), manifest.epoch
        checkpoint_store.forget(self.store, written.keep.dropped, manifests, written.manifest.epoch)
        checkpoint_store.forget_outcomes(self.store, written.keep.first_epoch)

    def damaged(self, reason: str) -> CheckpointRecord:
        """The newest checkpoint that needs a file of which something is said; else the newest one."""
        for record in reversed(self.published):
            try:
                segments = checkpoint_store.read_manifest(self.store, record).segments()
            except CorruptFileError:
                continue
            if any(segment in reason for segment in segments):
                return record
        return self.published[-1]

    def _older(self, kept: Iterable[CheckpointRecord], newest: CheckpointRecord) -> list[CheckpointManifest] | None:
        """The manifests of the older checkpoints that are kept; None if one is damaged: then nothing is removed."""
        try:
            return [checkpoint_store.read_manifest(self.store, record) for record in kept if record.epoch != newest.epoch]
        except CorruptFileError:
            return None


def saved_cohorts(reports: list[SlotReport], wanted: list[Partition], epoch: int) -> list[SavedCohort]:
    """The state of all wanted partitions, as the slots acknowledged it."""
    cohorts = (cohort for report in reports for cohort in report.cohorts if not cohort.shadow and not cohort.copy)
    saved = [cohort.checkpoint for cohort in cohorts if cohort.checkpoint is not None and cohort.cursor == epoch]
    found = {(cohort.operator, group) for cohort in saved for group in cohort.key_groups}
    missing = [str(partition) for partition in wanted if (partition.operator, partition.key_group) not in found]
    if missing:
        raise JobError(f"the checkpoint of epoch {epoch} lacks {', '.join(missing[:5])}; expected every partition that is live")
    return saved
