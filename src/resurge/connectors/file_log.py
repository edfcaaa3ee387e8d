"""What a file source has taken, as its log has it: batches that follow one another, and every file that is in one."""

from collections.abc import Iterable, Iterator

import msgspec

from resurge.connectors.contracts import Offset, SourceLog
from resurge.connectors.file_ranges import FileRange, Split
from resurge.errors import SourceError

SNAPSHOT_INTERVAL = 100


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """Every file that earlier batches have taken: whole ones with their size, those that were gone, and the others."""

    sizes_bytes: dict[str, int] = {}
    absent: tuple[str, ...] = ()
    unfinished: tuple[FileRange, ...] = ()


class Batch(msgspec.Struct, frozen=True, omit_defaults=True):
    """One log entry: the splits of a batch, and which entry it follows.

    Splits are logged, so a replay has the same ones whatever the options are by then. A batch of an epoch that was never
    committed is left out by the next one: that follows the same entry. From time to time an entry has all that was taken
    before it; then older entries are not needed to go on.
    """

    splits: tuple[Split, ...]
    previous: int = 0
    snapshot: Snapshot | None = None

    @property
    def ranges(self) -> list[FileRange]:
        """All ranges in order."""
        return [part for split in self.splits for part in split]


def encode_batch(batch: Batch) -> bytes:
    """A batch as a log entry."""
    return msgspec.json.encode(batch)


def read_batch(log: SourceLog, number: int, what: str) -> Batch:
    """A logged batch, or an error that names the entry."""
    try:
        return msgspec.json.decode(log.read(number), type=Batch)
    except (msgspec.DecodeError, OSError, KeyError) as error:
        raise SourceError(
            f"entry {number} of the log of {what} cannot be read ({error}); expected the list of files of that batch: "
            "restore the checkpoint folder, or start the job in a new one"
        ) from error


class FileLog:
    """The driver's view of a source's log, as of one batch: what was taken up to it, and where the next entry goes."""

    def __init__(self, log: SourceLog, what: str) -> None:
        self._log = log
        self._what = what
        self._at: int | None = None
        self._numbers: list[int] | None = None
        self._batches: dict[int, Batch] = {}
        self._absent: frozenset[str] = frozenset()
        self._entries = 0
        self.sizes_bytes: dict[str, int] = {}
        self.unfinished: dict[str, FileRange] = {}
        self.skipped: frozenset[str] = frozenset()

    def go_to(self, at: Offset) -> None:
        """Know what was taken up to an offset; entries of epochs that were not committed after it do not count."""
        number = int(at["batch"])
        if self._at == number:
            return
        if self._numbers is None:
            self._numbers = self._log.numbers()
            self.skipped = frozenset(self._log.skipped())
        self.sizes_bytes, self.unfinished, self._absent = {}, {}, frozenset()
        self._entries = 0
        for batch in reversed(list(self._back_to_snapshot(number))):
            self._take(batch)
        self._at = number

    def append(self, splits: tuple[Split, ...], listed: Iterable[str]) -> Offset:
        """Log the next batch; `listed` are the files that are there now."""
        previous = self._at or 0
        snapshot = self._snapshot(listed) if self._entries >= SNAPSHOT_INTERVAL else None
        batch, number = Batch(splits, previous, snapshot), self._last_number() + 1
        # A driver that was superseded may still have written an entry: no record of the journal names it.
        while not self._log.create(number, encode_batch(batch)):
            number += 1
        self._known_numbers().append(number)
        self._batches[number] = batch
        self._take(batch)
        self._at = number
        return {"batch": number}

    def between(self, start: Offset, end: Offset) -> list[Batch]:
        """The batches after one offset up to another."""
        number, first = int(end["batch"]), int(start["batch"])
        found = []
        while number > first:
            found.append(self._batch(number))
            number = found[-1].previous
        if number != first:
            raise SourceError(
                f"the log of {self._what} leads from batch {end['batch']} to {number}, but the epoch begins after {first}; "
                "expected batches that follow one another: restore the checkpoint folder, or start the job in a new one"
            )
        return found[::-1]

    def trim(self, end: Offset) -> None:
        """Remove what is not needed to go on from here: all before the newest entry that names everything taken before it."""
        covered = int(end["batch"])
        for number in [known for known in self._batches if known <= covered]:
            if self._batches[number].snapshot is None:
                del self._batches[number]
        first = max((number for number in self._batches if number <= covered), default=0)
        for number in [known for known in self._known_numbers() if known < first]:
            self._log.remove(number)
            self._batches.pop(number, None)
        self._numbers = [known for known in self._known_numbers() if known >= first]

    def _take(self, batch: Batch) -> None:
        self._entries += 1
        if batch.snapshot is not None:
            self._entries = 0
            self.sizes_bytes = dict(batch.snapshot.sizes_bytes)
            self._absent = frozenset(batch.snapshot.absent)
            self.unfinished = {part.path: part for part in batch.snapshot.unfinished}
        for part in batch.ranges:
            self.unfinished.pop(part.path, None)
            if part.is_last:
                self.sizes_bytes[part.path] = part.size_bytes
            else:
                self.unfinished[part.path] = part

    def _snapshot(self, listed: Iterable[str]) -> Snapshot:
        """All that was taken; a file that was gone at the last snapshot too is forgotten."""
        there = set(listed)
        absent = {path for path in self.sizes_bytes if path not in there}
        sizes = {path: size for path, size in self.sizes_bytes.items() if path not in absent & self._absent}
        return Snapshot(sizes, tuple(sorted(absent - self._absent)), tuple(self.unfinished.values()))

    def _back_to_snapshot(self, number: int) -> Iterator[Batch]:
        """The batches from one back to the newest with a snapshot, or to the first."""
        while number:
            batch = self._batch(number)
            yield batch
            if batch.snapshot is not None:
                return
            number = batch.previous

    def _batch(self, number: int) -> Batch:
        if number not in self._batches:
            self._batches[number] = read_batch(self._log, number, self._what)
        return self._batches[number]

    def _known_numbers(self) -> list[int]:
        if self._numbers is None:
            self._numbers = self._log.numbers()
        return self._numbers

    def _last_number(self) -> int:
        return max(self._known_numbers(), default=0)
