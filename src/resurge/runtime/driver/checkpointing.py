"""Publish checkpoints, and forget what they make needless."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from resurge.connectors.contracts import Offset
from resurge.coordinator.draining import domains as drained_domains
from resurge.coordinator.state import JobState
from resurge.errors import CorruptFileError, JobError
from resurge.model.names import Partition
from resurge.protocols.checkpoint import CheckpointRecord, Retention, retention
from resurge.storage import checkpoint_store
from resurge.storage.checkpoint_store import CheckpointManifest
from resurge.storage.durable import DurableStore
from resurge.storage.journal import Journal
from resurge.storage.runs import SavedCohort


class Written(NamedTuple):
    """A manifest that is written: its record, what is kept with it, the older manifests that are, if they can be read, and which it replaces."""

    manifest: CheckpointManifest
    record: CheckpointRecord
    keep: Retention
    older: list[CheckpointManifest] | None
    replaced: list[CheckpointRecord]


Manifest = tuple[CheckpointManifest, CheckpointRecord]
"""A manifest that is written, and the record by which the journal would name it."""


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

    def write(self, manifest: CheckpointManifest, absent: Iterable[Partition]) -> Manifest:
        """Write the manifest, which lacks what was not live; it counts once the journal names it."""
        record = checkpoint_store.publish(self.store, manifest)
        return manifest, record._replace(absent=tuple(map(str, absent)))

    def prepare(self, manifest: CheckpointManifest, record: CheckpointRecord) -> None:
        """Find out what is kept beside a manifest that is written, before the journal names it."""
        keep = retention([*self.published, record], self.kept, self.partitions)
        # Read before the journal names the new checkpoint: afterwards another driver may have taken over and removed them.
        replaced = [known for known in self.published if known.epoch == record.epoch]
        self.written = Written(manifest, record, keep, self._older(keep.kept, record), replaced)

    def write_with(self, new: CheckpointManifest, more: list[SavedCohort]) -> None:
        """Write a manifest with more states; it replaces that of its epoch, if there is one, and has all that this had."""
        absent, cohorts, added = self.partitions, list[SavedCohort](), _names(more)
        for record in self.published:
            if record.epoch == new.epoch:
                known = checkpoint_store.read_manifest(self.store, record)
                new = msgspec.structs.replace(known, gaps=new.gaps)
                absent, cohorts = record.absent, known.cohorts
        whole = msgspec.structs.replace(new, cohorts=[*cohorts, *more])
        record = checkpoint_store.publish(self.store, whole)
        self.prepare(whole, record._replace(absent=tuple(name for name in absent if name not in added)))

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
        dropped = [*written.keep.dropped, *written.replaced]
        checkpoint_store.forget(self.store, dropped, manifests, written.manifest.epoch)
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


def _names(cohorts: Iterable[SavedCohort]) -> set[str]:
    return {f"{cohort.operator}/{group}" for cohort in cohorts for group in cohort.key_groups}


def older_states(
    checkpoints: Mapping[int, Mapping[str, list[SavedCohort]]], wanted: Mapping[Partition, int]
) -> list[SavedCohort]:
    """The states that partitions have in the checkpoints of some epochs; at the beginning of the job they are empty."""
    groups: dict[tuple[int, str], set[int]] = {}
    for partition, epoch in wanted.items():
        groups.setdefault((epoch, partition.operator), set()).add(partition.key_group)
    found = []
    for (epoch, operator), mine in groups.items():
        saved = checkpoints.get(epoch, {}).get(operator, []) if epoch else [SavedCohort(operator, sorted(mine), {})]
        missing = mine.difference(*(cohort.key_groups for cohort in saved))
        if missing:
            raise JobError(
                f"the checkpoint of epoch {epoch} lacks {operator}/{min(missing)}; expected its state, to go on from it"
            )
        parts = ((cohort, sorted(mine.intersection(cohort.key_groups))) for cohort in saved)
        found += [SavedCohort(operator, shared, cohort.tables) for cohort, shared in parts if shared]
    return found


def described(manifest: CheckpointManifest, state: JobState) -> CheckpointManifest:
    """A manifest with what is known of its job: costs, copies, gaps and drained nodes."""
    copies: dict[str, dict[str, int]] = {}
    for (partition, node), copy in state.copies.items():
        copies.setdefault(str(partition), {})[str(node)] = copy.cursor
    return msgspec.structs.replace(
        manifest,
        costs={str(partition): cost for partition, cost in state.costs.items()},
        copies=copies,
        gaps={str(partition): gap for partition, gap in state.gaps.items()},
        drained=sorted(drained_domains(state)),
    )
