"""What the durable store says of a job, read without Spark, without the user's file, and without writing anything."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from resurge.errors import CorruptFileError, StorageError
from resurge.protocols.checkpoint import CheckpointRecord, candidates
from resurge.storage import paths
from resurge.storage.checkpoint_store import CheckpointManifest, read_manifest, verify
from resurge.storage.durable import DurableStore
from resurge.storage.job_store import JobIdentity, read_identity
from resurge.storage.journal import CheckpointPublished, EpochCommitted, EpochPlanned, Journal, Record

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
        """The epoch of the newest global checkpoint; 0 if there is none."""
        return self.checkpoints[0].epoch if self.checkpoints else 0

    def newest_checkpoint(self) -> tuple[CheckpointManifest | None, list[str]]:
        """The newest checkpoint whose manifest can be read, and what is wrong with newer ones."""
        problems: list[str] = []
        for record in self.checkpoints:
            try:
                return read_manifest(self.store, record), problems
            except CorruptFileError as error:
                problems.append(f"checkpoint of epoch {record.epoch}: {error}")
        return None, problems

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
    published = [CheckpointRecord(r.epoch, r.manifest, r.checksum) for r in records if isinstance(r, CheckpointPublished)]
    return StoredJob(store, identity, journal.generation, records, candidates(published))


def while_files_move(read: Callable[[], Read], url: str) -> Read:
    """Read again if a running driver deleted a file between listing it and reading it."""
    for _ in range(ATTEMPTS):
        try:
            return read()
        except FileNotFoundError:
            continue
    raise StorageError(f"files of the job at {url} keep disappearing while they are read; expected at most one driver: try again")
