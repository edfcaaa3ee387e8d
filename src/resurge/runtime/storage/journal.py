"""The job's journal: numbered records, each created once. Whoever creates the next number owns the job.

A driver that finds its next number taken has been superseded: it stops without writing. This is the generation fence.
"""

import contextlib
import zlib

import msgspec

from resurge.connectors.contracts import Offset, StagedPart
from resurge.errors import CorruptFileError, StaleGenerationError
from resurge.runtime.storage import paths
from resurge.runtime.storage.durable import DurableStore


class DriverStarted(msgspec.Struct, frozen=True, tag=True):
    """A driver took over the job."""

    generation: int


class EpochPlanned(msgspec.Struct, frozen=True, tag=True):
    """What an epoch reads, and the sources' watermarks when it begins; written before it runs."""

    epoch: int
    offsets: dict[str, tuple[Offset, Offset]]
    watermarks_us: dict[str, int]
    arrival_s: float
    drain: bool = False


class EpochCommitted(msgspec.Struct, frozen=True, tag=True):
    """An epoch's output is decided: these staged parts are the ones to show; written after it ran.

    `absent` are the partitions that did not take the epoch, because they were not live.
    """

    epoch: int
    watermarks_us: dict[str, int]
    parts: list[StagedPart]
    absent: list[str] = []


class CatchUpCommitted(msgspec.Struct, frozen=True, tag=True):
    """Partitions that were behind have reached these epochs, and these staged parts are the ones to show."""

    epoch: int
    cursors: dict[str, int]
    parts: list[StagedPart]


class CheckpointPublished(msgspec.Struct, frozen=True, tag=True):
    """A global checkpoint is complete; its epoch's output has been shown."""

    epoch: int
    manifest: str
    checksum: int


Record = DriverStarted | EpochPlanned | EpochCommitted | CatchUpCommitted | CheckpointPublished
_decoder = msgspec.json.Decoder(Record)


class Journal:
    """Appends records with the fence, and reads what is there."""

    def __init__(self, store: DurableStore) -> None:
        self.store = store
        self.next_number = 0
        self.generation = 0
        self._kinds: dict[int, Record] = {}

    def read(self) -> list[Record]:
        """All records in order."""
        self._kinds = {}
        for name in self.store.names(paths.JOURNAL):
            number = paths.number_of(name)
            if number is not None:
                # A driver that still runs may trim between our listing and our reading; what it trims is not needed.
                with contextlib.suppress(FileNotFoundError):
                    self._note(number, self._decode(name))
        return self.records()

    def records(self) -> list[Record]:
        """What has been read and written so far, in order."""
        return [self._kinds[number] for number in sorted(self._kinds)]

    def take_over(self) -> int:
        """Begin a new generation; whoever ran the job before will find its next record taken."""
        while True:
            number = self.next_number
            generation = self.generation + 1
            if self.store.create(paths.journal_entry(number), _encode(DriverStarted(generation))):
                self._note(number, DriverStarted(generation))
                return generation
            self.read()

    def append(self, record: Record) -> None:
        """Write the next record, or stop because another driver has."""
        number = self.next_number
        if not self.store.create(paths.journal_entry(number), _encode(record)):
            raise StaleGenerationError(
                f"another driver has taken over the job at {self.store.url} (journal record {number} is not ours, generation "
                f"{self.generation}); expected to be the only one: this driver stops without writing"
            )
        self._note(number, record)

    def trim(self, first_epoch: int) -> None:
        """Forget what a restart from the checkpoint before this epoch, or from a later one, does not need."""
        for number, record in list(self._kinds.items()):
            if self._is_disposable(record, first_epoch):
                self.store.remove(paths.journal_entry(number))
                del self._kinds[number]

    def _is_disposable(self, record: Record, first_epoch: int) -> bool:
        if isinstance(record, DriverStarted):
            return record.generation < self.generation
        if isinstance(record, CheckpointPublished):
            return record.epoch < first_epoch - 1
        return record.epoch < first_epoch

    def _note(self, number: int, record: Record) -> None:
        self._kinds[number] = record
        self.next_number = number + 1
        if isinstance(record, DriverStarted):
            self.generation = max(self.generation, record.generation)

    def _decode(self, name: str) -> Record:
        content = self.store.read(name)
        checksum, _, body = content.partition(b"\n")
        if checksum != b"%08x" % zlib.crc32(body):
            raise CorruptFileError(
                f"{self.store.path(name)} does not fit its checksum: the file is torn or was altered; "
                "restore it from a copy, or start a new job"
            )
        record: Record = _decoder.decode(body)
        return record


def _encode(record: Record) -> bytes:
    body = msgspec.json.encode(record)
    return b"%08x\n%s" % (zlib.crc32(body), body)
