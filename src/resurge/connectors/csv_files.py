"""CSV files: parsed as text at once and cast column by column; record by record only where something does not fit."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from resurge.connectors.file_ranges import FileRange
from resurge.connectors.frames import BadRow
from resurge.connectors.locations import read_bytes
from resurge.connectors.text_records import BYTE_ORDER_MARK, Record, header_record, records_of
from resurge.errors import BadFileError

_TIMES = ("%H:%M:%S%.f", "%H:%M:%S%.fZ", "%H:%M")
_INSTANTS = (*(f"%Y-%m-%d{mark}{time}" for time in _TIMES for mark in " T"), "%Y-%m-%d")
_INSTANTS_WITH_ZONE = ("%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M:%S%.f%#z")
_SHOWN_VALUE_CHARACTERS = 60
_END = b"end of file"


def is_csv_type(kind: pl.DataType) -> bool:
    """Whether a field of text can be cast to a type."""
    return kind.is_numeric() or isinstance(kind, pl.String | pl.Boolean | pl.Date | pl.Datetime | pl.Time)


def read_csv(part: FileRange, schema: pl.Schema, *, has_header: bool) -> tuple[pl.DataFrame, list[BadRow]]:
    """A range's good rows and bad rows. An empty field is null, a quoted empty field is an empty string."""
    data = read_bytes(part.path, part.byte_start, part.byte_end)
    names, line = list(schema), part.line_start + 1
    if has_header:
        header = header_record(part.path, part.size_bytes)
        names = _header_names(header, part.path, schema)
        if part.byte_start == 0:
            before_rows = data.index(header.content) + len(header.content)
            line += data[:before_rows].count(b"\n")
            data = data[before_rows:]
    elif part.byte_start == 0:
        data = data.removeprefix(BYTE_ORDER_MARK)
    table = CsvTable(part.path, names, schema)
    if data.count(b"\r") != data.count(b"\r\n"):
        return table.read_record_by_record(data, line)  # a carriage return alone ends a line for one parser and not for another
    try:
        text = table.parse(data)
    except ValueError:
        return table.read_record_by_record(data, line)
    frame, failed = table.cast(text)
    if failed.any():
        return table.read_record_by_record(data, line)
    return frame, []


def _header_names(header: Record, path: str, schema: pl.Schema) -> list[str]:
    text = header.content.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "backslashreplace")
    names = next(csv.reader(io.StringIO(text)), [])
    missing = [name for name in schema if name not in names]
    if missing:
        raise BadFileError(
            f"{path} has the columns {', '.join(names) or 'none'}, but the schema also has {', '.join(missing)} "
            "(pass has_header=False if the first line is a row)"
        )
    return names


@dataclass(frozen=True)
class CsvTable:
    """How the records of one file are read: the columns they have, and the columns wanted."""

    path: str
    names: Sequence[str]
    schema: pl.Schema

    def parse(self, data: bytes) -> pl.DataFrame:
        """All records as text; raises ValueError if one has a wrong number of fields, is torn or is not UTF-8."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        if not data or data.isspace():
            return pl.DataFrame(schema=dict.fromkeys(self.schema, pl.String))
        # A last record of our own: the parser would take an open quote at the end for a closed one, and this record with it.
        data = b"".join((data, b"" if data.endswith(b"\n") else b"\n", b",".join([_END] * len(self.names)), b"\n"))
        table = arrow_csv.read_csv(
            io.BytesIO(data),
            # One block: a record that lies across two blocks would be refused.
            read_options=arrow_csv.ReadOptions(column_names=self.names, use_threads=False, block_size=len(data) + 1),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(self.schema, pa.string()),
                include_columns=list(self.schema),
                strings_can_be_null=True,
                null_values=[""],
                quoted_strings_can_be_null=False,
            ),
        )
        text = pl.DataFrame(pl.from_arrow(table))
        if text.row(-1) != (_END.decode(),) * text.width:
            raise ValueError("a quoted field is never closed")
        return text[:-1]

    def cast(self, text: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
        """The rows with their types, and which of them have a value that does not cast."""
        columns = [cast_text(text[name], kind) for name, kind in self.schema.items()]
        failed = pl.repeat(False, text.height, dtype=pl.Boolean, eager=True)
        for column in columns:
            if column.null_count() != text[column.name].null_count():
                failed = failed | (column.is_null() & text[column.name].is_not_null())
        return pl.DataFrame(columns, schema=self.schema), failed

    def read_record_by_record(self, data: bytes, first_line: int) -> tuple[pl.DataFrame, list[BadRow]]:
        """The same as at once, but the records that do not fit are named."""
        records = [record for record in records_of(data, first_line, "csv") if record.fields != 0]
        problems = [self._problem(record) for record in records]
        kept = [record for record, problem in zip(records, problems, strict=True) if problem is None]
        text = self._parse_kept(kept)
        frame, failed = self.cast(text)
        failures = {kept[index].line: self._failure(text, frame, index) for index in failed.arg_true().to_list()}
        bad = [
            BadRow(f"{self.path}:{record.line}", record.text, problem or failures[record.line])
            for record, problem in zip(records, problems, strict=True)
            if problem is not None or record.line in failures
        ]
        return frame.filter(~failed), bad

    def _parse_kept(self, kept: Sequence[Record]) -> pl.DataFrame:
        try:
            text = self.parse(b"".join(record.content.rstrip(b"\r\n") + b"\n" for record in kept))
        except ValueError as error:
            raise BadFileError(f"{self.path} cannot be read as CSV: {error}") from error
        if text.height != len(kept):
            raise BadFileError(f"{self.path} cannot be read as CSV: {len(kept)} records were found, but {text.height} were read")
        return text

    def _problem(self, record: Record) -> str | None:
        if record.fields is None:
            return "a quoted field is never closed, or a carriage return stands outside quotes"
        if record.fields != len(self.names):
            return f"expected {len(self.names)} fields, got {record.fields}"
        try:
            record.content.decode("utf-8")
        except UnicodeDecodeError as error:
            return f"not UTF-8: {error.reason} at byte {error.start + 1}"
        return None

    def _failure(self, text: pl.DataFrame, frame: pl.DataFrame, index: int) -> str:
        wrong = [name for name in self.schema if frame[name][index] is None and text[name][index] is not None]
        shown = str(text[wrong[0]][index])[:_SHOWN_VALUE_CHARACTERS]
        return f"column {wrong[0]!r} is {self.schema[wrong[0]]}, got {shown!r}"


def cast_text(text: pl.Series, kind: pl.DataType) -> pl.Series:
    """Text as values of a type; null where it does not cast. Instants are ISO 8601; with a zone they become UTC."""
    if isinstance(kind, pl.String):
        return text
    if isinstance(kind, pl.Boolean):
        return text.str.to_lowercase().replace_strict({"true": True, "false": False}, default=None, return_dtype=pl.Boolean)
    if isinstance(kind, pl.Date):
        return text.str.to_date("%Y-%m-%d", strict=False)
    if isinstance(kind, pl.Time):
        return text.str.to_time("%H:%M:%S%.f", strict=False)
    if isinstance(kind, pl.Datetime):
        return _cast_instants(text, kind)
    return text.cast(kind, strict=False)


def _cast_instants(text: pl.Series, kind: pl.Datetime) -> pl.Series:
    """A value fits at most one pattern, so their order only matters for speed: most columns use one throughout."""
    first = text.drop_nulls().head(1).to_list()
    marked = bool(first) and "T" in first[0]
    naive = pl.Series(text.name, [None], pl.Datetime(kind.time_unit)).new_from_index(0, text.len())
    for pattern in sorted(_INSTANTS, key=lambda pattern: ("T" in pattern) != marked):
        if naive.null_count() == text.null_count():
            break
        parsed = text.str.to_datetime(pattern, time_unit=kind.time_unit, strict=False)
        naive = naive.zip_with(naive.is_not_null(), parsed)
    for pattern in _INSTANTS_WITH_ZONE:
        if naive.null_count() == text.null_count():
            break
        zoned = text.str.to_datetime(pattern, time_unit=kind.time_unit, time_zone="UTC", strict=False)
        naive = naive.zip_with(naive.is_not_null(), zoned.dt.replace_time_zone(None))
    return naive if kind.time_zone is None else naive.dt.replace_time_zone("UTC").dt.convert_time_zone(kind.time_zone)
