"""Files that keep arriving in a folder or a glob: Parquet, CSV or JSON lines. Each file is taken exactly once."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Literal, cast

import polars as pl

from resurge.connectors.contracts import BadRowPolicy, Offset, ReadLimit, Source, SourceLog, SourceReader
from resurge.connectors.csv_files import is_csv_type, read_csv
from resurge.connectors.file_log import FileLog
from resurge.connectors.file_ranges import (
    MAXIMUM_SPLIT_ROWS,
    MINIMUM_CUT_ROWS,
    FileRange,
    Split,
    changed_error,
    check_unchanged,
    plan_splits,
    range_of,
    rest_of,
)
from resurge.connectors.frames import BadRow, bad_frame, refuse_bad_rows
from resurge.connectors.json_lines import is_json_type, read_json_lines
from resurge.connectors.locations import FoundFile, list_files, plain_location
from resurge.connectors.parquet_files import cut_parquet, parquet_rows, parquet_schema, read_parquet
from resurge.connectors.text_records import cut_text
from resurge.errors import BadFileError, ResurgeError, SourceError, TopologyError

FileFormat = Literal["parquet", "csv", "jsonl"]
SUFFIXES: dict[str, FileFormat] = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
SAMPLED_ROWS = 1000
LARGE_TEXT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class FileSource(Source):
    """A folder or glob of files of one format; `files` makes one."""

    location: str
    format: FileFormat
    columns: pl.Schema
    max_rows_per_epoch: int | None = None
    max_files_per_epoch: int | None = None
    bad_rows: BadRowPolicy = "fail"
    has_header: bool = True
    splits: int = 4

    def with_bad_rows(self, policy: BadRowPolicy) -> "FileSource":
        return replace(self, bad_rows=policy)

    def schema(self) -> pl.Schema:
        return self.columns

    def reader(self, log: SourceLog) -> "FileReader":
        return FileReader(self, log)

    def signature(self) -> str:
        return f"{self.format} {super().signature()}"


def files(
    location: str | os.PathLike[str],
    format: FileFormat | None = None,
    schema: pl.Schema | dict[str, Any] | None = None,
    *,
    max_rows_per_epoch: int | None = None,
    max_files_per_epoch: int | None = None,
    bad_rows: BadRowPolicy = "fail",
    has_header: bool = True,
    splits: int = 4,
) -> FileSource:
    """Files that keep arriving, in order of modification time, then name. The format follows from the suffix if not given.

    Names that begin with "_" or "." or end with ".tmp" or ".staged" are ignored: write a file under such a name and rename it.
    A malformed CSV or JSON row fails the job, or with bad_rows="route" goes to the side output; so does a file that cannot be
    read at all.
    """
    where = plain_location(location)
    chosen = format or _format_of(where)
    if chosen not in SUFFIXES.values():
        raise TopologyError(f"the format of {where} is {chosen!r}; expected 'parquet', 'csv' or 'jsonl'")
    if bad_rows not in ("fail", "route"):
        raise TopologyError(f"bad_rows of {where} is {bad_rows!r}; expected 'fail' or 'route'")
    bounds = {"max_rows_per_epoch": max_rows_per_epoch, "max_files_per_epoch": max_files_per_epoch, "splits": splits}
    for name, value in bounds.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise TopologyError(f"{name} of {where} is {value!r}; expected a whole number of at least 1")
    columns = pl.Schema(schema) if schema is not None else _inferred_schema(where, chosen)
    _check_types(where, chosen, columns)
    return FileSource(where, chosen, columns, max_rows_per_epoch, max_files_per_epoch, bad_rows, has_header, splits)


def _format_of(location: str) -> FileFormat:
    for suffix, known in SUFFIXES.items():
        if location.lower().endswith(suffix):
            return known
    raise TopologyError(
        f"the format of {location} cannot be told from its name; expected a suffix out of {', '.join(SUFFIXES)}: "
        "pass format='parquet', 'csv' or 'jsonl'"
    )


def _inferred_schema(location: str, file_format: FileFormat) -> pl.Schema:
    if file_format != "parquet":
        raise TopologyError(f"{location} is {file_format} and has no schema of its own: pass schema={{'column': pl.Int64, ...}}")
    try:
        return parquet_schema(list_files(location)[0].path)
    except (IndexError, SourceError) as error:
        raise TopologyError(
            f"{location} has no readable Parquet file yet to take the schema from ({error}): pass schema=..."
        ) from error


def _check_types(location: str, file_format: FileFormat, columns: pl.Schema) -> None:
    if not columns:
        raise TopologyError(f"the schema of {location} has no columns; expected at least one")
    fits = {"csv": is_csv_type, "jsonl": is_json_type}.get(file_format)
    for name, kind in columns.items():
        if fits is not None and not fits(kind):
            raise TopologyError(
                f"column {name!r} of {location} is {kind}, which {file_format} cannot hold: "
                "read it as String and convert it in a map"
            )


class FileReader(SourceReader):
    """Reads a FileSource. Offset {"batch": n} is the end of log entry n, which says which rows of which files it has."""

    def __init__(self, source: FileSource, log: SourceLog) -> None:
        self.source = source
        self.name = f"files({source.location})"
        self._log: FileLog | None = FileLog(log, self.name)
        self._footer_rows: dict[tuple[str, str], int] = {}
        self._seen_bytes = self._seen_rows = 0

    def __getstate__(self) -> dict[str, Any]:
        """Executors only read splits: the log stays on the driver."""
        return {"source": self.source, "name": self.name, "_log": None}

    def initialOffset(self) -> Offset:
        return {"batch": 0}

    def latest_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The next batch, made of the files that are there now, and logged; one that was never committed is made anew."""
        log = self._driver_log()
        log.go_to(start)
        listed = list_files(self.source.location)
        ranges = self._next_ranges(listed, limit)
        if not ranges:
            return start
        splits = plan_splits(ranges, self.source.splits, can_cut=self.source.format == "parquet")
        for part in ranges:
            if part.is_last:
                self._footer_rows.pop((part.path, part.version), None)
        return log.append(splits, [file.path for file in listed])

    def newest_offset(self, start: Offset) -> Offset:
        """All there is now; "unread_rows" are those that are in no batch yet, as many as files of that size usually have."""
        self._driver_log().go_to(start)
        rests, new = self._waiting(list_files(self.source.location))
        counted, bytes_left = 0, 0
        waiting: list[FileRange | FoundFile] = [*new, *rests]
        for part in waiting:
            first = part.row_start if isinstance(part, FileRange) else 0
            rows = self._footer_rows.get((part.path, part.version))
            if rows is not None:
                counted += rows - first
            else:
                bytes_left += part.size_bytes - (part.byte_start if isinstance(part, FileRange) else 0)
        if bytes_left and not self._seen_rows:
            self._sample(waiting[0])
        estimated = round(bytes_left * self._seen_rows / self._seen_bytes) if self._seen_bytes else 0
        return {**start, "unread_rows": counted + estimated}

    def _sample(self, file: FileRange | FoundFile) -> None:
        """Learn from one file how long rows are."""
        if self.source.format == "parquet":
            self._rows(file)
        else:
            part = file if isinstance(file, FileRange) else range_of(file)
            head = cut_text(part, SAMPLED_ROWS, cast(Any, self.source.format), has_header=self._has_header())
            self._see(head.byte_end - head.byte_start, head.rows or 0)

    def _see(self, size_bytes: int, rows: int) -> None:
        self._seen_bytes += size_bytes
        self._seen_rows += rows

    def partitions(self, start: Offset, end: Offset) -> Sequence[Split]:
        return [split for batch in self._driver_log().between(start, end) for split in batch.splits if split]

    def read_frames(self, partition: Split) -> tuple[pl.DataFrame, pl.DataFrame]:
        good: list[pl.DataFrame] = []
        bad: list[BadRow] = []
        for part in partition:
            check_unchanged(part)
            frame, refused = self._read_range(part)
            good.append(frame)
            bad.extend(refused)
        refused_rows = bad_frame(bad)
        if self.source.bad_rows == "fail":
            refuse_bad_rows(refused_rows)
        return pl.concat(good) if good else pl.DataFrame(schema=self.source.columns), refused_rows

    def commit(self, end: Offset) -> None:
        """Trim the log. Files are kept: who wrote them decides when they go."""
        self._driver_log().trim(end)

    def rows_between(self, start: Offset, end: Offset) -> int | None:
        counts = [part.rows for batch in self._driver_log().between(start, end) for part in batch.ranges]
        counts.append(end.get("unread_rows", 0))
        return None if None in counts else sum(cast(list[int], counts))

    def arrival_s(self, start: Offset, end: Offset) -> float | None:
        """A file's rows arrive when it was last written."""
        batches = self._driver_log().between(start, end)
        weighted = [(part.modified_s, max(1, part.weight)) for batch in batches for part in batch.ranges]
        total = sum(weight for _, weight in weighted)
        return sum(modified_s * weight for modified_s, weight in weighted) / total if total else None

    def _read_range(self, part: FileRange) -> tuple[pl.DataFrame, list[BadRow]]:
        """A range's good and bad rows; a file that cannot be read at all is one bad row, if such rows are routed."""
        try:
            if self.source.format == "parquet":
                return read_parquet(part, self.source.columns), []
            if self.source.format == "csv":
                return read_csv(part, self.source.columns, has_header=self.source.has_header)
            return read_json_lines(part, self.source.columns)
        except BadFileError as error:
            if self.source.bad_rows == "fail":
                raise _with_ways_on(error, part.path) from error
            return pl.DataFrame(schema=self.source.columns), [BadRow(part.path, "", str(error))]
        except ResurgeError:
            raise
        except OSError as error:
            raise SourceError(f"{part.path} cannot be read: {error}; make it readable and run the same command again") from error

    def _next_ranges(self, listed: Sequence[FoundFile], limit: ReadLimit) -> list[FileRange]:
        """The rows that come next, within the limits; a file's rest comes before any new file."""
        bounds = [bound for bound in (limit.max_rows, self.source.max_rows_per_epoch) if bound is not None]
        rows_left = min(bounds) if bounds else None
        rests, new = self._waiting(listed)
        ranges: list[FileRange] = []
        for part in islice(chain(rests, map(range_of, new)), self.source.max_files_per_epoch):
            taken = self._cut(part, rows_left)
            ranges.extend(taken)
            if rows_left is not None:
                rows_left -= sum(piece.rows or 0 for piece in taken)
                if rows_left <= 0:
                    break
        return ranges

    def _cut(self, part: FileRange, max_rows: int | None) -> list[FileRange]:
        if self.source.format == "parquet":
            return [self._cut_parquet(part, max_rows)]
        if max_rows is None and part.byte_end - part.byte_start <= LARGE_TEXT_BYTES:
            return [part]
        piece_rows = MAXIMUM_SPLIT_ROWS if max_rows is None else max(MINIMUM_CUT_ROWS, -(-max_rows // self.source.splits))
        pieces: list[FileRange] = []
        while not pieces or not pieces[-1].is_last:
            wanted = piece_rows if max_rows is None else min(piece_rows, max_rows - sum(piece.rows or 0 for piece in pieces))
            if wanted <= 0:
                break
            rest = rest_of(pieces[-1]) if pieces else part
            pieces.append(cut_text(rest, wanted, cast(Any, self.source.format), has_header=self._has_header()))
            self._see(pieces[-1].byte_end - pieces[-1].byte_start, pieces[-1].rows or 0)
        return pieces

    def _cut_parquet(self, part: FileRange, max_rows: int | None) -> FileRange:
        try:
            return cut_parquet(part, self._rows(part), max_rows)
        except BadFileError as error:
            if self.source.bad_rows == "fail":
                raise _with_ways_on(error, part.path) from error
            return cut_parquet(part, part.row_start + 1, None)  # read as one row, it becomes one bad row

    def _has_header(self) -> bool:
        return self.source.format == "csv" and self.source.has_header

    def _waiting(self, listed: Sequence[FoundFile]) -> tuple[list[FileRange], list[FoundFile]]:
        """What is not in any batch yet: rests of files, then new files in order of arrival. Skipped files are left out."""
        log = self._driver_log()
        new: list[FoundFile] = []
        for file in listed:
            if file.path in log.skipped:
                continue
            part = log.unfinished.get(file.path)
            logged_bytes = part.size_bytes if part is not None else log.sizes_bytes.get(file.path)
            if logged_bytes is None:
                new.append(file)
            elif logged_bytes != file.size_bytes:
                raise changed_error(file.path, logged_bytes, file.size_bytes)
        return [rest_of(part) for path, part in log.unfinished.items() if path not in log.skipped], new

    def _rows(self, file: FileRange | FoundFile) -> int:
        """A Parquet file's rows; its footer is read once."""
        key = (file.path, file.version)
        if key not in self._footer_rows:
            self._footer_rows[key] = parquet_rows(file.path)
            self._see(file.size_bytes, self._footer_rows[key])
        return self._footer_rows[key]

    def _driver_log(self) -> FileLog:
        if self._log is None:
            raise SourceError(f"{self.name} was asked on an executor what to read; only the driver plans: call read there")
        return self._log


def _with_ways_on(error: BadFileError, path: str) -> BadFileError:
    return BadFileError(
        f"{error}; nothing of it was committed in this epoch: replace it by a correct file or move it away, give the source "
        f"bad_rows='route' to make it one bad row, or skip it with `resurge skip URL SOURCE {shlex.quote(path)}`; then run again"
    )
