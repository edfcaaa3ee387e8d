"""Publish global checkpoints, and forget what they make needless."""

from dataclasses import dataclass, field

from resurge.connectors.contracts import Offset
from resurge.errors import JobError
from resurge.model.names import Partition
from resurge.protocols.checkpoint import CheckpointRecord, retention
from resurge.runtime.storage import checkpoint_store
from resurge.runtime.storage.checkpoint_store import CheckpointManifest
from resurge.runtime.storage.durable import DurableStore
from resurge.runtime.storage.journal import CheckpointPublished, Journal
from resurge.runtime.storage.runs import SavedState
from resurge.runtime.worker.messages import SlotReport


@dataclass
class Checkpoints:
    """The checkpoints of a job that are kept."""

    store: DurableStore
    journal: Journal
    kept: int
    published: list[CheckpointRecord] = field(default_factory=list)
    oldest_reached: dict[str, Offset] = field(default_factory=dict)

    def publish(self, manifest: CheckpointManifest) -> None:
        """Write the manifest, name it in the journal, and trim journal and older checkpoints."""
        record = checkpoint_store.publish(self.store, manifest)
        self.journal.append(CheckpointPublished(record.epoch, record.manifest, record.checksum))
        self.published.append(record)
        keep = retention(self.published, self.kept)
        self.journal.trim(keep.first_epoch)
        manifests = [manifest if r.epoch == manifest.epoch else checkpoint_store.read_manifest(self.store, r) for r in keep.kept]
        self.oldest_reached = dict(min(manifests, key=lambda kept: kept.epoch).reached)
        checkpoint_store.forget(self.store, keep.dropped, manifests, manifest.epoch)
        checkpoint_store.forget_outcomes(self.store, keep.first_epoch)
        self.published = list(reversed(keep.kept))


def saved_partitions(reports: list[SlotReport], wanted: list[Partition], epoch: int) -> dict[str, SavedState]:
    """Every partition's saved state, as the slots acknowledged it."""
    saved = {
        f"{partition.operator}/{partition.key_group}": partition.checkpoint
        for report in reports
        for partition in report.partitions
        if partition.checkpoint is not None
    }
    missing = [str(partition) for partition in wanted if str(partition) not in saved]
    if missing:
        raise JobError(f"the checkpoint of epoch {epoch} lacks {', '.join(missing[:5])}; expected every partition")
    return saved
