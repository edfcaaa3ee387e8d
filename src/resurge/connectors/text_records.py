"""Records of CSV and JSON-lines files: where each ends, so that a file can be taken in parts and a bad record named."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

import msgspec

from resurge.connectors.file_ranges import FileRange
from resurge.connectors.locations import open_file, read_bytes

TextFormat = Literal["csv", "jsonl"]
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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
    """At most so many records from the beginning of a range, counted; the header is not a row."""
    records = lines = length = 0
    header = 1 if has_header and part.byte_start == 0 else 0
    with open_file(part.path) as file:
        file.seek(part.byte_start)
        for record in records_in(file, part.line_start + 1, text_format):
            records += record.fields != 0
            lines += record.content.count(b"\n")
            length += len(record.content)
            if records == max_rows + header:
                break
    byte_end = part.byte_start + length
    return msgspec.structs.replace(
        part,
        row_end=part.row_start + max(0, records - header),
        byte_end=byte_end,
        line_end=part.line_start + lines,
        is_last=byte_end >= part.size_bytes,
    )


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


def _csv_records(file: BinaryIO, first_line: int) -> Iterator[Record]:
    """CSV records as Python's own reader sees them: a quoted field may hold line ends."""
    taken: list[bytes] = []

    def decoded() -> Iterator[str]:
        for content in file:
            taken.append(content)
            yield content.decode("utf-8", "surrogateescape")

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
        yield Record(line, content, None if _ends_in_quotes(content) else fields)
        line += content.count(b"\n")


def _ends_in_quotes(content: bytes) -> bool:
    """Whether a record's last quote is never closed; only such a record, or an odd one, has an odd number of quotes."""
    if content.count(b'"') % 2 == 0:
        return False
    try:
        list(csv.reader([content.decode("utf-8", "surrogateescape")], strict=True))
    except csv.Error as error:
        return "unexpected end" in str(error)
    return False
