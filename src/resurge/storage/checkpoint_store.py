"""Checkpoints in the durable store: manifests with checksums, and the segments that they name."""

import zlib
from collections.abc import Iterable
from itertools import count

import msgspec

from resurge.connectors.contracts import Offset
from resurge.errors import CorruptFileError
from resurge.model.gaps import Gap
from resurge.protocols.checkpoint import CheckpointRecord
from resurge.storage import paths
from resurge.storage.durable import DurableStore
from resurge.storage.runs import RunRef, SavedCohort


class CheckpointManifest(msgspec.Struct, frozen=True):
    """A checkpoint: the state of every partition that was live at the end of one epoch, and how far the sources were read then.

    `gaps` has what partitions were made to skip up to then, by name; `drained` are the failure domains that a user drained.
    """

    epoch: int
    generation: int
    watermarks_us: dict[str, int]
    reached: dict[str, Offset]
    cohorts: list[SavedCohort]
    costs: dict[str, float] = {}
    copies: dict[str, dict[str, int]] = {}
    gaps: dict[str, Gap] = {}
    drained: list[str] = []

    def references(self) -> list[RunRef]:
        """Every block that the checkpoint consists of."""
        tables = (table for cohort in self.cohorts for table in cohort.tables.values())
        places = {place: None for table in tables for run in table.runs for place in run.durable}
        return [RunRef.decode(place) for place in places]

    def segments(self) -> set[str]:
        """The files that the checkpoint needs."""
        return {reference.segment for reference in self.references()}


def publish(store: DurableStore, manifest: CheckpointManifest) -> CheckpointRecord:
    """Write a manifest; it counts once the journal names it."""
    content = msgspec.json.encode(manifest)
    # A driver that went back from a damaged checkpoint may make another one of the same epoch.
    names = (paths.checkpoint_manifest(manifest.epoch, manifest.generation, attempt) for attempt in count())
    name = next(name for name in names if store.create(name, content))
    return CheckpointRecord(manifest.epoch, name, zlib.crc32(content))


def read_manifest(store: DurableStore, record: CheckpointRecord) -> CheckpointManifest:
    """A published manifest, checked."""
    try:
        content = store.read(record.manifest)
    except FileNotFoundError as error:
        raise CorruptFileError(f"{store.path(record.manifest)} is missing") from error
    if zlib.crc32(content) != record.checksum:
        raise CorruptFileError(f"{store.path(record.manifest)} does not fit its checksum: the file is torn or was altered")
    return msgspec.json.decode(content, type=CheckpointManifest)


def verify(store: DurableStore, manifest: CheckpointManifest) -> None:
    """Read every run of a checkpoint and compare its checksum; names the first file that does not fit."""
    by_segment: dict[str, list[RunRef]] = {}
    for reference in manifest.references():
        by_segment.setdefault(reference.segment, []).append(reference)
    for segment, references in by_segment.items():
        try:
            content = memoryview(store.read(segment))
        except FileNotFoundError as error:
            raise CorruptFileError(f"{store.path(segment)} is missing") from error
        for reference in references:
            piece = content[reference.offset : reference.offset + reference.length]
            if len(piece) != reference.length or zlib.crc32(piece) != reference.checksum:
                raise CorruptFileError(f"{store.path(segment)} does not fit its checksum: the file is torn or was altered")


def forget_outcomes(store: DurableStore, before_epoch: int) -> None:
    """Delete logged outcomes, and rows of parts, of epochs that no restart will run or show again."""
    for name in [*store.names(paths.OUTCOMES), *store.names(paths.PART_ROWS)]:
        epoch = paths.number_of(name)
        if epoch is not None and epoch < before_epoch:
            store.remove_later(name)


def forget(
    store: DurableStore, dropped: Iterable[CheckpointRecord], kept: Iterable[CheckpointManifest], before_epoch: int
) -> None:
    """Delete dropped manifests, then segments that no kept checkpoint needs and that are older than the newest one."""
    needed = {segment for manifest in kept for segment in manifest.segments()}
    for record in dropped:
        store.remove_later(record.manifest)
    for name in store.names(paths.CHECKPOINT_DATA):
        epoch = paths.number_of(name)
        if epoch is not None and epoch < before_epoch and name not in needed:
            store.remove_later(name)
