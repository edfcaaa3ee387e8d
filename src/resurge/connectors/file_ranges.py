"""Consecutive rows of a file, and splits of them: what a file source logs and reads."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from resurge.connectors.locations import FoundFile, fingerprint, stat_file
from resurge.errors import SourceError

MAXIMUM_SPLIT_ROWS = 250_000
MINIMUM_CUT_ROWS = 25_000


class FileRange(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive rows of one file. A range of a text file has bytes and lines too; `row_end` None: rows not counted."""

    path: str
    size_bytes: int
    version: str
    fingerprint: int
    modified_s: float
    row_start: int
    row_end: int | None
    byte_start: int
    byte_end: int
    line_start: int
    line_end: int
    is_last: bool

    @property
    def rows(self) -> int | None:
        """How many rows, if counted."""
        return None if self.row_end is None else self.row_end - self.row_start

    @property
    def weight(self) -> int:
        """How much work the range is: the rows of a Parquet file, the bytes of a text file."""
        return self.byte_end - self.byte_start or self.rows or 0


Split = tuple[FileRange, ...]


def plan_splits(ranges: Sequence[FileRange], splits: int, *, can_cut: bool) -> tuple[Split, ...]:
    """Group small ranges and cut large ones, so that an epoch has about as many splits as asked for; order is kept."""
    total = sum(part.weight for part in ranges)
    target = max(1, -(-total // splits))
    cut_rows = min(MAXIMUM_SPLIT_ROWS, max(target, MINIMUM_CUT_ROWS))
    pieces = [piece for part in ranges for piece in (_cut(part, cut_rows) if can_cut else [part])]
    groups: list[list[FileRange]] = []
    weight = 0
    for piece in pieces:
        if not groups or weight + piece.weight > target:
            groups.append([])
            weight = 0
        groups[-1].append(piece)
        weight += piece.weight
    return tuple(tuple(group) for group in groups)


def _cut(part: FileRange, rows: int) -> Iterable[FileRange]:
    """A counted range in pieces of about equal size, none larger than `rows`."""
    if part.row_end is None or part.weight <= rows:
        return [part]
    pieces = -(-part.weight // rows)
    bounds = [part.row_start + part.weight * index // pieces for index in range(pieces + 1)]
    return [
        msgspec.structs.replace(part, row_start=first, row_end=last, is_last=part.is_last and last == part.row_end)
        for first, last in pairwise(bounds)
    ]


def check_unchanged(part: FileRange) -> None:
    """Refuse a file that is not what it was when it was logged."""
    now = stat_file(part.path)
    if now is None:
        raise SourceError(f"{part.path} has vanished since it was logged; expected a file of {part.size_bytes} bytes: {_WAYS_ON}")
    if now.size_bytes != part.size_bytes:
        raise changed_error(part.path, part.size_bytes, now.size_bytes)
    if now.version != part.version and fingerprint(now) != part.fingerprint:
        raise SourceError(
            f"{part.path} has other content than when it was logged, though it still has {part.size_bytes} bytes: {_WAYS_ON}"
        )


_WAYS_ON = (
    "run the same command again, and it is taken as it is now if no row of it was committed; else put the old file back, or give up what "
    "was not read of it with `resurge skip`, and give new data a new name"
)


def changed_error(path: str, logged_bytes: int, size_bytes: int) -> SourceError:
    """A file that grew or shrank."""
    verb = "shrank" if size_bytes < logged_bytes else "grew"
    return SourceError(
        f"{path} {verb} from {logged_bytes} to {size_bytes} bytes since it was logged; expected files that do not change: {_WAYS_ON}; "
        "write new files under a name ending in .tmp and rename them when complete"
    )


def range_of(file: FoundFile) -> FileRange:
    """All of a file, not yet counted."""
    return FileRange(
        path=file.path,
        size_bytes=file.size_bytes,
        version=file.version,
        fingerprint=fingerprint(file),
        modified_s=file.modified_s,
        row_start=0,
        row_end=None,
        byte_start=0,
        byte_end=file.size_bytes,
        line_start=0,
        line_end=0,
        is_last=True,
    )


def rest_of(part: FileRange) -> FileRange:
    """What is left of a file after a counted range."""
    return msgspec.structs.replace(
        part,
        row_start=part.row_end or 0,
        row_end=None,
        byte_start=part.byte_end,
        byte_end=part.size_bytes,
        line_start=part.line_end,
        is_last=True,
    )
