"""Records of CSV and JSON-lines files: where each ends, so that a file can be taken in parts and a bad record named."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO, Literal

import msgspec
import numpy as np

from resurge.connectors.file_ranges import FileRange
from resurge.connectors.locations import open_file, read_bytes

TextFormat = Literal["csv", "jsonl"]
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLOCK_BYTES = 1_048_576


@dataclass(frozen=True)
class Record:
    """One record of a text file: the line it begins on, its bytes, and how many fields it has (0: blank, None: torn)."""

    line: int
    content: bytes
    fields: int | None

    @property
    def text(self) -> str:
        """The record as it can be shown."""
        return self.content.decode("utf-8", "backslashreplace").rstrip("\r\n")


def cut_text(part: FileRange, max_rows: int, text_format: TextFormat, *, has_header: bool) -> FileRange:
    """At most so many records from the beginning of a range, counted; the header is not a row, but a blank line is."""
    header = 1 if has_header and part.byte_start == 0 else 0
    with open_file(part.path) as file:
        file.seek(part.byte_start)
        counted = _count(file, max_rows + header, text_format)
    byte_end = part.byte_start + counted.length
    return msgspec.structs.replace(
        part,
        row_end=part.row_start + max(0, counted.records - header),
        byte_end=byte_end,
        line_end=part.line_start + counted.lines,
        is_last=byte_end >= part.size_bytes,
    )


@dataclass
class _Counted:
    records: int = 0
    lines: int = 0
    length: int = 0

    def add(self, records: int, content: bytes) -> None:
        self.records += records
        self.lines += content.count(b"\n")
        self.length += len(content)


def _count(file: BinaryIO, limit: int, text_format: TextFormat) -> _Counted:
    """Records from where the file stands: whole blocks by their line ends, but where there are quotes one by one."""
    counted = _Counted()
    while counted.records < limit:
        block = file.read(_BLOCK_BYTES) + file.readline()
        if not block:
            break
        if text_format == "csv" and b'"' in block:
            _count_csv(counted, block, file, limit)
        else:
            _count_lines(counted, block, limit)
    return counted


def _count_lines(counted: _Counted, block: bytes, limit: int) -> None:
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    wanted = limit - counted.records
    if lines > wanted:
        ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
        block, lines = block[: int(ends[wanted - 1]) + 1], wanted
    counted.add(lines, block)


def _count_csv(counted: _Counted, block: bytes, file: BinaryIO, limit: int) -> None:
    """A record that begins in the block may end behind it."""
    block_end = counted.length + len(block)
    for record in _csv_records(chain(io.BytesIO(block), file), 1):
        counted.add(1, record.content)
        if counted.records == limit or counted.length >= block_end:
            return


def header_record(path: str, size_bytes: int) -> Record:
    """The first record of a CSV file, without its byte-order mark."""
    with open_file(path) as file:
        for record in records_in(file, 1, "csv"):
            if record.fields != 0:
                return record
    return Record(1, read_bytes(path, 0, size_bytes), 0)


def records_of(data: bytes, first_line: int, text_format: TextFormat) -> Iterator[Record]:
    """The records of some bytes."""
    return records_in(io.BytesIO(data), first_line, text_format)


def records_in(file: BinaryIO, first_line: int, text_format: TextFormat) -> Iterator[Record]:
    """The records of an open file, from where it stands."""
    return _csv_records(file, first_line) if text_format == "csv" else _line_records(file, first_line)


def _line_records(file: BinaryIO, first_line: int) -> Iterator[Record]:
    for line, content in enumerate(file, first_line):
        yield Record(line, content, 1 if content.strip() else 0)


def _csv_records(file: Iterable[bytes], first_line: int) -> Iterator[Record]:
    """CSV records as Python's own reader sees them: a quoted field may hold line ends."""
    taken: list[bytes] = []
    ended = False

    def decoded() -> Iterator[str]:
        nonlocal ended
        for content in file:
            taken.append(content)
            yield content.decode("utf-8", "surrogateescape")
        ended = True

    reader = csv.reader(decoded())
    line = first_line
    while True:
        try:
            fields: int | None = len(next(reader))
        except StopIteration:
            return
        except csv.Error:
            fields = None
        content = b"".join(taken)
        taken.clear()
        # The reader asks for a line in the middle of a record only inside quotes: at the end they were never closed.
        yield Record(line, content, None if ended else fields)
        line += content.count(b"\n")
