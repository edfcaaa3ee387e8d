"""What the durable store says of a job, read without Spark, without the user's file, and without writing anything."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from resurge.errors import CorruptFileError, StorageError
from resurge.protocols.checkpoint import CheckpointRecord, candidates, retention
from resurge.storage import paths
from resurge.storage.checkpoint_store import CheckpointManifest, read_manifest, verify
from resurge.storage.durable import DurableStore
from resurge.storage.job_store import JobIdentity, read_identity
from resurge.storage.journal import CheckpointPublished, EpochCommitted, EpochPlanned, Journal, Record
from resurge.storage.runs import SavedCohort

Read = TypeVar("Read")
ATTEMPTS = 5


@dataclass(frozen=True)
class StoredJob:
    """A job as it is kept: its identity, its journal and the checkpoints that the journal names, newest first."""

    store: DurableStore
    identity: JobIdentity
    generation: int
    records: list[Record]
    checkpoints: list[CheckpointRecord]

    @property
    def planned_epoch(self) -> int:
        """The last epoch whose input was decided."""
        return max((r.epoch for r in self.records if isinstance(r, EpochPlanned)), default=self.checkpoint_epoch)

    @property
    def committed_epoch(self) -> int:
        """The last epoch whose output was decided."""
        return max((r.epoch for r in self.records if isinstance(r, EpochCommitted)), default=self.checkpoint_epoch)

    @property
    def checkpoint_epoch(self) -> int:
        """The epoch of the newest checkpoint; 0 if there is none."""
        return self.checkpoints[0].epoch if self.checkpoints else 0

    @property
    def absent(self) -> dict[int, list[str]]:
        """The partitions that were not live at the newest checkpoint, by the older epoch from which each goes on."""
        found: dict[int, list[str]] = {}
        for name in self.checkpoints[0].absent if self.checkpoints else ():
            epoch = next((record.epoch for record in self.checkpoints if name not in record.absent), 0)
            found.setdefault(epoch, []).append(name)
        return found

    def newest_checkpoint(self) -> tuple[CheckpointManifest | None, list[str]]:
        """The newest checkpoint whose manifest can be read, with older states of what it lacks; and what is wrong with others."""
        problems: list[str] = []
        newest: CheckpointManifest | None = None
        missing = {""}
        for record in self.checkpoints:
            if not missing.difference(record.absent):
                continue
            try:
                manifest = read_manifest(self.store, record)
            except CorruptFileError as error:
                problems.append(f"checkpoint of epoch {record.epoch}: {error}")
                continue
            if newest is None:
                newest, missing = manifest, set(record.absent)
            else:
                older = _of(manifest.cohorts, missing.difference(record.absent))
                newest = msgspec.structs.replace(newest, cohorts=[*newest.cohorts, *older])
                missing.intersection_update(record.absent)
        return newest, problems

    def problems(self) -> dict[int, str | None]:
        """For each checkpoint, what is wrong with its files; None if they are whole."""
        return {record.epoch: self._problem(record) for record in self.checkpoints}

    def written_at(self, name: str) -> datetime | None:
        """When a file was written, where the store can tell."""
        try:
            found = self.store.filesystem.modified(self.store.path(name))
        except (OSError, NotImplementedError):
            return None
        if not isinstance(found, datetime):
            return None
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

    def _problem(self, record: CheckpointRecord) -> str | None:
        try:
            verify(self.store, read_manifest(self.store, record))
        except CorruptFileError as error:
            return str(error)
        return None


def open_job(url: str) -> StoredJob:
    """Read the job at a URL, or say that there is none."""
    store = DurableStore(url)
    identity = read_identity(store)
    if identity is None:
        raise StorageError(
            f"there is no job at {url}; expected the checkpoint URL that a job was run with: {paths.JOB} is missing"
        )
    journal = Journal(store)
    records = while_files_move(journal.read, url)
    published = [record.record for record in records if isinstance(record, CheckpointPublished)]
    return StoredJob(store, identity, journal.generation, records, _kept(store, published))


def _kept(store: DurableStore, published: list[CheckpointRecord]) -> list[CheckpointRecord]:
    """The checkpoints that are there or should be, newest first: the journal also names some that were dropped since."""
    names = {"", *(name for record in published for name in record.absent)}
    needed = retention(published, 1, names).kept
    there = frozenset(store.names(paths.CHECKPOINTS))
    return [record for record in candidates(published) if record in needed or record.manifest in there]


def _of(cohorts: list[SavedCohort], partitions: Collection[str]) -> list[SavedCohort]:
    """The cohorts of some partitions alone."""
    found = []
    for cohort in cohorts:
        groups = [group for group in cohort.key_groups if f"{cohort.operator}/{group}" in partitions]
        if groups:
            found.append(msgspec.structs.replace(cohort, key_groups=groups))
    return found


def while_files_move(read: Callable[[], Read], url: str) -> Read:
    """Read again if a running driver deleted a file between listing it and reading it."""
    for _ in range(ATTEMPTS):
        try:
            return read()
        except FileNotFoundError:
            continue
    raise StorageError(f"files of the job at {url} keep disappearing while they are read; expected at most one driver: try again")
