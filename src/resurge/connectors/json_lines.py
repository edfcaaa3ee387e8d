"""JSON-lines files: decoded at once to the schema's types; line by line only where a line does not fit."""

import datetime
import decimal
from collections.abc import Sequence
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, TypedDict

import msgspec
import polars as pl

from resurge.connectors.file_ranges import FileRange
from resurge.connectors.frames import BadRow, conform
from resurge.connectors.locations import read_bytes
from resurge.connectors.text_records import BYTE_ORDER_MARK, Record, records_of

_INTEGER_BITS = {pl.Int8: 8, pl.Int16: 16, pl.Int32: 32, pl.Int64: 64}
_UNSIGNED_BITS = {pl.UInt8: 8, pl.UInt16: 16, pl.UInt32: 32, pl.UInt64: 64}
_PYTHON_TYPES: dict[type[pl.DataType], Any] = {
    pl.Boolean: bool,
    pl.Float32: float,
    pl.Float64: float,
    pl.String: str,
    pl.Binary: bytes,
    pl.Date: datetime.date,
    pl.Datetime: datetime.datetime,
    pl.Time: datetime.time,
    pl.Duration: datetime.timedelta,
    pl.Decimal: decimal.Decimal,
}
_SHORTEST_TIME_BYTES = len("2024-01-31T23:59:59")
_CONVERSION_ERRORS = (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError)


def is_json_type(kind: Any) -> bool:
    """Whether a JSON value can be decoded to a type."""
    kind = _instance(kind)
    if isinstance(kind, pl.List):
        return is_json_type(kind.inner)
    if isinstance(kind, pl.Struct):
        return all(is_json_type(field.dtype) for field in kind.fields)
    return type(kind) in _PYTHON_TYPES or type(kind) in _INTEGER_BITS or type(kind) in _UNSIGNED_BITS


def read_json_lines(part: FileRange, schema: pl.Schema) -> tuple[pl.DataFrame, list[BadRow]]:
    """A range's good rows and bad rows. A field that is missing is null, one that is not in the schema is ignored."""
    data = read_bytes(part.path, part.byte_start, part.byte_end)
    if part.byte_start == 0:
        data = data.removeprefix(BYTE_ORDER_MARK)
    decoder = _decoder(tuple(schema.items()))
    try:
        return _frame(decoder.decode_lines(data), schema), []
    except (msgspec.MsgspecError, *_CONVERSION_ERRORS):
        return _read_line_by_line(decoder, data, part, schema)


def decode_values(values: Sequence[bytes | None], schema: pl.Schema) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """JSON objects that are apart from each other: the good rows, and the position and problem of each bad one."""
    try:
        rows = list(map(_decoder(tuple(schema.items()), times_as_text=True).decode, values))  # type: ignore[arg-type]
        return _quick_frame(rows, schema), []
    except (msgspec.MsgspecError, *_CONVERSION_ERRORS):
        return _decode_one_by_one(values, schema)


def _decode_one_by_one(values: Sequence[bytes | None], schema: pl.Schema) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    decoder = _decoder(tuple(schema.items()))
    good: list[Any] = []
    bad: list[tuple[int, str]] = []
    for index, value in enumerate(values):
        try:
            if value is None:
                raise ValueError("expected a JSON object, got a record without a value")
            row = decoder.decode(value)
        except (msgspec.MsgspecError, ValueError) as error:
            bad.append((index, str(error)))
            continue
        problem = _conversion_problem(row, schema)
        if problem is None:
            good.append(row)
        else:
            bad.append((index, str(problem)))
    return _frame(good, schema), bad


def _quick_frame(rows: Sequence[Any], schema: pl.Schema) -> pl.DataFrame:
    """Columns made by C loops; raises a ValueError where a time is not written in the usual way."""
    columns = []
    for index, (name, kind) in enumerate(schema.items()):
        values = list(map(attrgetter(f"column_{index}"), rows))
        if _is_plain_time(kind):
            columns.append(_times(pl.Series(name, values, dtype=pl.String)).cast(kind))
        else:
            columns.append(pl.Series(name, values, dtype=kind, strict=True))
    return pl.DataFrame(columns, schema=schema)


def _times(texts: pl.Series) -> pl.Series:
    """Times of the form 2024-01-31T23:59:59.123456, without a zone."""
    import pyarrow as pa

    shortest = texts.str.len_bytes().min()
    if isinstance(shortest, int) and shortest < _SHORTEST_TIME_BYTES:
        raise ValueError("a time has no seconds")  # Arrow would take it, and the decoder of single rows would not
    arrow = texts.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.timestamp("us"))
    return pl.Series(texts.name, pl.from_arrow(arrow))


def _is_plain_time(kind: Any) -> bool:
    return isinstance(kind, pl.Datetime) and kind.time_zone is None


def _read_line_by_line(
    decoder: "msgspec.json.Decoder[Any]", data: bytes, part: FileRange, schema: pl.Schema
) -> tuple[pl.DataFrame, list[BadRow]]:
    decoded: list[tuple[Record, Any]] = []
    bad: list[tuple[Record, Exception]] = []
    for record in records_of(data, part.line_start + 1, "jsonl"):
        if record.fields == 0:
            continue
        try:
            decoded.append((record, decoder.decode(record.content)))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            bad.append((record, error))
    try:
        frame = _frame([row for _, row in decoded], schema)
    except _CONVERSION_ERRORS:
        problems = [(record, row, _conversion_problem(row, schema)) for record, row in decoded]
        bad.extend((record, problem) for record, _, problem in problems if problem is not None)
        frame = _frame([row for _, row, problem in problems if problem is None], schema)
    bad.sort(key=lambda pair: pair[0].line)
    return frame, [BadRow(f"{part.path}:{record.line}", record.text, str(error)) for record, error in bad]


def _conversion_problem(row: Any, schema: pl.Schema) -> Exception | None:
    try:
        _frame([row], schema)
    except _CONVERSION_ERRORS as error:
        return error
    return None


def _frame(rows: Sequence[Any], schema: pl.Schema) -> pl.DataFrame:
    columns = [
        pl.Series(name, [getattr(row, f"column_{index}") for row in rows], dtype=kind, strict=True)
        for index, (name, kind) in enumerate(schema.items())
    ]
    return conform(pl.DataFrame(columns), schema)


@cache
def _decoder(columns: tuple[tuple[str, pl.DataType], ...], *, times_as_text: bool = False) -> "msgspec.json.Decoder[Any]":
    """A decoder of one row; fields have numbered names, for a column may have any name."""
    fields = [
        (f"column_{index}", (str if times_as_text and _is_plain_time(kind) else _python_type(kind)) | None, None)
        for index, (_, kind) in enumerate(columns)
    ]
    names = {f"column_{index}": name for index, (name, _) in enumerate(columns)}
    return msgspec.json.Decoder(msgspec.defstruct("Row", fields, rename=names, gc=False))


def _instance(kind: Any) -> Any:
    """Polars lets a type stand for its instance inside another type."""
    return kind() if isinstance(kind, type) else kind


def _python_type(kind: Any) -> Any:
    kind = _instance(kind)
    if type(kind) in _INTEGER_BITS:
        bound = 2 ** (_INTEGER_BITS[type(kind)] - 1)
        return Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)]
    if type(kind) in _UNSIGNED_BITS:
        return Annotated[int, msgspec.Meta(ge=0)]
    if isinstance(kind, pl.List):
        return list[_python_type(kind.inner) | None]  # type: ignore[misc]
    if isinstance(kind, pl.Struct):
        fields = {field.name: _python_type(field.dtype) | None for field in kind.fields}
        return TypedDict("Nested", fields, total=False)  # type: ignore[operator]
    return _PYTHON_TYPES[type(kind)]
