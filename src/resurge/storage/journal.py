"""The job's journal: numbered records, each created once. Whoever creates the next number owns the job.

A driver that finds its next number taken has been superseded: it stops without writing. This is the generation fence.

Trimming deletes records from the lowest number on, so a deleted number could be created again by a driver that slept. Such a
record never counts: its writer finds that the record before it is not the one it knows, and stops; readers leave out every
number below the first one that the newest checkpoint needs.
"""

import secrets
import zlib
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from resurge.connectors.contracts import Offset, StagedPart
from resurge.errors import CorruptFileError, StaleGenerationError
from resurge.protocols.checkpoint import CheckpointRecord
from resurge.storage import paths
from resurge.storage.durable import DurableStore


class DriverStarted(msgspec.Struct, frozen=True, tag=True):
    """A driver took over the job; `voids` says that the record before was torn, and that nobody had acted on it."""

    generation: int
    voids: bool = False


class EpochPlanned(msgspec.Struct, frozen=True, tag=True):
    """What an epoch reads, and the sources' watermarks when it begins; written before it runs.

    `plan` is the generation that planned it. An epoch that was not committed is planned anew by the next driver: the newest
    record of an epoch counts.
    """

    epoch: int
    offsets: dict[str, tuple[Offset, Offset]]
    watermarks_us: dict[str, int]
    arrival_s: float
    drain: bool = False
    plan: int = 0


class EpochCommitted(msgspec.Struct, frozen=True, tag=True):
    """An epoch's output is decided: these staged parts are the ones to show; written after it ran.

    `absent` are the partitions that did not take the epoch, because they were not live; None says that they are those of the
    checkpoint or commit before. `rows` is the file with the rows of those parts that carry them, `rows_read` how many the sources had.
    """

    epoch: int
    watermarks_us: dict[str, int]
    parts: list[StagedPart]
    absent: list[str] | None = []
    rows: str | None = None
    rows_read: int = 0


class CatchUpCommitted(msgspec.Struct, frozen=True, tag=True):
    """Partitions that were behind have reached these epochs, and these staged parts are the ones to show."""

    epoch: int
    cursors: dict[str, int]
    parts: list[StagedPart]
    rows: str | None = None


class CheckpointPublished(msgspec.Struct, frozen=True, tag=True):
    """A checkpoint is complete; its epoch's output has been shown. Records before `first_number` are not needed.

    It has the states of all partitions but the absent ones, which were not live.
    """

    epoch: int
    manifest: str
    checksum: int
    generation: int
    first_number: int
    absent: list[str] = []

    @property
    def record(self) -> CheckpointRecord:
        """What is known of the checkpoint."""
        return CheckpointRecord(self.epoch, self.manifest, self.checksum, tuple(self.absent))


class CheckpointRefused(msgspec.Struct, frozen=True, tag=True):
    """A file of a checkpoint was found to be damaged when it was restored: no driver is to use it."""

    epoch: int
    manifest: str
    reason: str


Record = DriverStarted | EpochPlanned | EpochCommitted | CatchUpCommitted | CheckpointPublished | CheckpointRefused
_decoder = msgspec.json.Decoder(Record)
MOST_READINGS = 50


@dataclass(frozen=True)
class _Entry:
    """A record as it is stored; `record` is None if its bytes do not fit their checksum."""

    number: int
    content: bytes
    record: Record | None


class Journal:
    """Appends records with the fence, and reads what is there."""

    def __init__(self, store: DurableStore) -> None:
        self.store = store
        self.writer = secrets.token_hex(8)
        self.generation = 0
        self._entries: list[_Entry] = []
        self._left: list[int] = []

    @property
    def next_number(self) -> int:
        """The number of the record that is written next."""
        return self._entries[-1].number + 1 if self._entries else 0

    def read(self) -> list[Record]:
        """All records in order."""
        for _ in range(MOST_READINGS):
            try:
                found = [self._stored(number) for number in self._numbers()]
            except FileNotFoundError:
                continue  # a driver that runs trims between our listing and our reading
            if self._adopt(found):
                return self.records()
        raise CorruptFileError(
            f"the journal at {self.store.url} lacks records between the first one that a restart needs and the last one; expected "
            "all of them: restore them from a copy, or start a new job"
        )

    def records(self) -> list[Record]:
        """What has been read and written so far, in order."""
        return [entry.record for entry in self._entries if entry.record is not None]

    def take_over(self) -> int:
        """Begin a new generation; whoever ran the job before will find its next record taken."""
        while True:
            voids = bool(self._entries) and self._entries[-1].record is None
            # A torn record may have been a generation.
            generation = self.generation + 1 + voids
            if self._write(DriverStarted(generation, voids)):
                return generation
            self.read()

    def append(self, record: Record) -> None:
        """Write the next record, or stop because another driver has."""
        number = self.next_number
        if not self._write(record):
            raise self._superseded(number)

    def refuse_superseded(self) -> None:
        """Stop because another driver has taken over, if one has: whatever else went wrong, that is why."""
        if self.store.exists(paths.journal_entry(self.next_number)) or not self._follows(self.next_number):
            raise self._superseded(self.next_number)

    def _superseded(self, number: int) -> StaleGenerationError:
        return StaleGenerationError(
            f"another driver has taken over the job at {self.store.url} (journal record {number} is not ours, generation "
            f"{self.generation}); expected to be the only one: this driver stops without writing"
        )

    def publish(self, checkpoint: CheckpointRecord, first_epoch: int) -> None:
        """Append a checkpoint, then delete the records that a restart from it, or from an older one that is kept, does not need."""
        needed = (entry.number for entry in self._entries if _is_needed(entry.record, first_epoch))
        first_number = min(needed, default=self.next_number)
        epoch, manifest, checksum, absent = checkpoint
        self.append(CheckpointPublished(epoch, manifest, checksum, self.generation, first_number, list(absent)))
        self._trim(first_number)

    def _trim(self, first_number: int) -> None:
        trimmed = [entry.number for entry in self._entries if entry.number < first_number]
        if not trimmed and not self._left:
            return
        self.store.create(paths.JOURNAL_TRIMMED, b"")
        # In this order: a record that is there tells that no later number has been deleted.
        for number in sorted([*self._left, *trimmed]):
            self.store.remove_later(paths.journal_entry(number))
        self._left = []
        self._entries = [entry for entry in self._entries if entry.number >= first_number]

    def _write(self, record: Record) -> bool:
        """Create the next record; False if the number is, or was, another driver's."""
        number, content = self.next_number, _encode(record, self.writer)
        # Looked at before, so that a driver that slept leaves nothing behind; and after, because it may sleep in between.
        if not self._follows(number) or not self.store.create(paths.journal_entry(number), content) or not self._follows(number):
            return False
        self._entries.append(_Entry(number, content, record))
        self.generation = max(self.generation, _generation(record))
        return True

    def _follows(self, number: int) -> bool:
        """Whether the record before a new one is the one we know; if not, the new one's number has been used and deleted."""
        if number == 0:
            return not self.store.exists(paths.JOURNAL_TRIMMED)
        try:
            return self.store.read(paths.journal_entry(number - 1)) == self._entries[-1].content
        except FileNotFoundError:
            return False

    def _numbers(self) -> list[int]:
        found = (paths.number_of(name) for name in self.store.names(paths.JOURNAL))
        return sorted(number for number in found if number is not None)

    def _stored(self, number: int) -> _Entry:
        content = self.store.read(paths.journal_entry(number))
        return _Entry(number, content, _decoded(content))

    def _adopt(self, found: list[_Entry]) -> bool:
        """Take what was read for the journal; False if a number is missing."""
        firsts = [entry.record.first_number for entry in found if isinstance(entry.record, CheckpointPublished)]
        first = max(firsts, default=0)
        entries = [entry for entry in found if entry.number >= first]
        if any(entry.record is None for entry in entries):
            entries = self._whole_without_torn(entries)
        elif [entry.number for entry in entries] != list(range(first, first + len(entries))):
            return False
        for entry, after in pairwise(entries):
            if entry.record is None and not _voids(after.record):
                raise self._corrupt(entry.number)
        self._left = [entry.number for entry in found if entry.number < first]
        self._entries = entries
        self.generation = max((_generation(entry.record) for entry in entries), default=0)
        return True

    def _whole_without_torn(self, entries: list[_Entry]) -> list[_Entry]:
        """The unbroken end of a journal in which a record is torn; that may be a checkpoint after which records were trimmed."""
        end = entries[-1].number
        unbroken = [entry for index, entry in enumerate(entries) if entry.number == end - (len(entries) - 1 - index)]
        records = [entry.record for entry in unbroken]
        begins = any(isinstance(record, EpochPlanned) and record.epoch == 1 for record in records)
        if unbroken[0].number > 0 and not begins and not any(isinstance(record, CheckpointPublished) for record in records):
            raise self._corrupt(next(entry.number for entry in entries if entry.record is None))
        return unbroken

    def _corrupt(self, number: int) -> CorruptFileError:
        return CorruptFileError(
            f"{self.store.path(paths.journal_entry(number))} does not fit its checksum: the file is torn or was altered; "
            "restore it from a copy, or start a new job"
        )


def _is_needed(record: Record | None, first_epoch: int) -> bool:
    """Whether a restart from the checkpoint before this epoch, or from a later one, needs a record."""
    if record is None or isinstance(record, DriverStarted):
        return False
    if isinstance(record, CheckpointPublished | CheckpointRefused):
        return record.epoch >= first_epoch - 1
    return record.epoch >= first_epoch


def _voids(record: Record | None) -> bool:
    return isinstance(record, DriverStarted) and record.voids


def _generation(record: Record | None) -> int:
    return record.generation if isinstance(record, DriverStarted | CheckpointPublished) else 0


def _encode(record: Record, writer: str) -> bytes:
    """The writer makes a record unlike any other that had its number."""
    body = b"%s\n%s" % (writer.encode(), msgspec.json.encode(record))
    return b"%08x\n%s" % (zlib.crc32(body), body)


def _decoded(content: bytes) -> Record | None:
    checksum, _, body = content.partition(b"\n")
    if checksum != b"%08x" % zlib.crc32(body):
        return None
    record: Record = _decoder.decode(body.partition(b"\n")[2])
    return record
