"""Rows in PostgreSQL's binary COPY format, encoded column by column with NumPy."""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from resurge.errors import SinkError

HEADER = b"PGCOPY\n\xff\r\n\x00" + struct.pack("!ii", 0, 0)
TRAILER = struct.pack("!h", -1)
Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
_DAYS_TO_2000 = 10_957
_MICROSECONDS_TO_2000 = _DAYS_TO_2000 * 86_400_000_000
_TYPES: dict[type[pl.DataType], tuple[str, str]] = {
    # Polars type: PostgreSQL type, and how NumPy writes a value of it.
    pl.Boolean: ("bool", "?"),
    pl.Int8: ("int2", ">i2"),
    pl.Int16: ("int2", ">i2"),
    pl.Int32: ("int4", ">i4"),
    pl.Int64: ("int8", ">i8"),
    pl.UInt8: ("int2", ">i2"),
    pl.UInt16: ("int4", ">i4"),
    pl.UInt32: ("int8", ">i8"),
    pl.Float32: ("float4", ">f4"),
    pl.Float64: ("float8", ">f8"),
    pl.Date: ("date", ">i4"),
    pl.Time: ("time", ">i8"),
    pl.Datetime: ("timestamp", ">i8"),
}
_TEXTS = (pl.String, pl.Categorical, pl.Enum)
_NUMERIC_DIGITS = 4
_NEGATIVE = 0x4000
_JSON_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def postgres_type(name: str, kind: pl.DataType) -> str:
    """The PostgreSQL type that a column is written as."""
    if isinstance(kind, pl.Datetime) and kind.time_zone:
        return "timestamptz"
    if isinstance(kind, _TEXTS):
        return "text"
    if isinstance(kind, pl.Binary):
        return "bytea"
    if isinstance(kind, pl.List | pl.Struct | pl.Array):
        return "jsonb"
    if isinstance(kind, pl.Decimal):
        return f"numeric({kind.precision},{kind.scale})"
    if type(kind) not in _TYPES:
        raise SinkError(f"column {name!r} is {kind}, which cannot be written to PostgreSQL: cast it, such as to Int64 or String")
    return _TYPES[type(kind)][0]


@dataclass(frozen=True)
class _Field:
    """One column's values: their lengths (-1 for null), and the bytes of those that are not null, one after another."""

    lengths: Numbers
    content: Bytes


def copy_rows(frame: pl.DataFrame) -> bytes:
    """The rows without header and trailer, so that several parts can be written one after another."""
    if not frame.height or not frame.width:
        return b""
    fields = [_field(frame[name]) for name in frame.columns]
    sizes = [np.maximum(field.lengths, 0) for field in fields]
    ends = np.cumsum(2 + sum(4 + size for size in sizes))
    buffer: Bytes = np.zeros(int(ends[-1]), dtype=np.uint8)
    cursor: Numbers = np.concatenate(([0], ends[:-1]))
    _scatter(buffer, cursor, np.tile(np.frombuffer(struct.pack("!h", len(fields)), np.uint8), frame.height), 2)
    cursor = cursor + 2
    for field, size in zip(fields, sizes, strict=True):
        _scatter(buffer, cursor, field.lengths.astype(">i4").view(np.uint8), 4)
        cursor = cursor + 4
        _scatter_values(buffer, cursor, field)
        cursor = cursor + size
    return buffer.tobytes()


def _scatter(buffer: Bytes, where: Numbers, content: Bytes, width: int) -> None:
    """Write values of the same width, one at each place."""
    values = content.reshape(-1, width)
    for byte in range(width):
        buffer[where + byte] = values[:, byte]


def _scatter_values(buffer: Bytes, where: Numbers, field: _Field) -> None:
    filled = field.lengths > 0
    lengths = field.lengths if filled.all() else field.lengths[filled]
    places = where if filled.all() else where[filled]
    if not len(lengths):
        return
    if (lengths == lengths[0]).all():
        _scatter(buffer, places, field.content, int(lengths[0]))
        return
    begins = np.cumsum(lengths) - lengths
    buffer[np.repeat(places - begins, lengths) + np.arange(len(field.content))] = field.content


def _field(series: pl.Series) -> _Field:
    kind = series.dtype
    if isinstance(kind, _TEXTS):
        return _without_nul(series.name, _variable(series.cast(pl.String).cast(pl.Binary)))
    if isinstance(kind, pl.Binary):
        return _variable(series)
    if isinstance(kind, pl.List | pl.Struct | pl.Array):
        return _without_nul(series.name, _variable(_json(series)), is_json=True)
    if isinstance(kind, pl.Decimal):
        return _numeric(series, kind)
    code = _TYPES[type(kind)][1]
    values = _plain(series).drop_nulls().to_numpy().astype(code)
    lengths = np.where(series.is_null().to_numpy(), -1, values.dtype.itemsize).astype(np.int64)
    return _Field(lengths, values.view(np.uint8))


def _numeric(series: pl.Series, kind: pl.Decimal) -> _Field:
    """Decimals in groups of four digits, with as many groups for every value: the server drops zeros in front."""
    groups_before = -(-((kind.precision or 38) - kind.scale) // _NUMERIC_DIGITS)
    groups_after = -(-kind.scale // _NUMERIC_DIGITS)
    text = series.drop_nulls().cast(pl.String)
    parts = text.str.strip_prefix("-").str.splitn(".", 2).struct
    before = parts.field("field_0").str.zfill(groups_before * _NUMERIC_DIGITS)
    # A number below one may be written as "0.5", though its type has no digits in front.
    before = before.str.tail(groups_before * _NUMERIC_DIGITS)
    after = parts.field("field_1").fill_null("").str.pad_end(groups_after * _NUMERIC_DIGITS, "0")
    shape = len(text), groups_before + groups_after, _NUMERIC_DIGITS
    digits = np.frombuffer("".join((before + after).to_list()).encode(), np.uint8).reshape(shape).astype(np.int16) - 48
    values = np.empty((len(text), 4 + groups_before + groups_after), dtype=">i2")
    values[:, 0], values[:, 1], values[:, 3] = groups_before + groups_after, groups_before - 1, kind.scale
    values[:, 2] = np.where(text.str.starts_with("-").to_numpy(), _NEGATIVE, 0)
    values[:, 4:] = digits @ np.array([1000, 100, 10, 1], np.int16)
    lengths = np.where(series.is_null().to_numpy(), -1, values.shape[1] * 2).astype(np.int64)
    return _Field(lengths, values.reshape(-1).view(np.uint8))


def _without_nul(name: str, field: _Field, *, is_json: bool = False) -> _Field:
    """Refuse text with a NUL character, which PostgreSQL has no text for, before the epoch is committed."""
    content = field.content.tobytes()
    if _JSON_NUL.search(content) is not None if is_json else b"\0" in content:
        raise SinkError(
            f"column {name!r} has text with a NUL character, which PostgreSQL cannot store: take it out in a map, such as with "
            f"pl.col({name!r}).str.replace_all('\\0', '', literal=True)"
        )
    return field


def _plain(series: pl.Series) -> pl.Series:
    """Times as PostgreSQL counts them: from the year 2000, in microseconds."""
    kind = series.dtype
    if isinstance(kind, pl.Date):
        return series.to_physical() - _DAYS_TO_2000
    if isinstance(kind, pl.Datetime):
        return series.dt.cast_time_unit("us").to_physical() - _MICROSECONDS_TO_2000
    if isinstance(kind, pl.Time):
        return series.to_physical() // 1000
    return series


def _json(series: pl.Series) -> pl.Series:
    """Nested values as jsonb: its version, then the text."""
    wrapped = series.to_frame("v").select(pl.struct("v").struct.json_encode()).to_series()
    # {"v":...} without the braces and the name.
    text = wrapped.str.slice(5).str.head(-1)
    version = pl.Series([b"\x01"]).first()
    joined = pl.DataFrame({"text": text.cast(pl.Binary)}).select(pl.lit(version, dtype=pl.Binary) + pl.col("text"))
    return joined.to_series().set(series.is_null(), None) if series.null_count() else joined.to_series()


def _variable(series: pl.Series) -> _Field:
    lengths = series.bin.size().cast(pl.Int64).fill_null(-1).to_numpy()
    content = b"".join(series.drop_nulls().to_list())
    return _Field(lengths, np.frombuffer(content, dtype=np.uint8))


def copy_message(parts: Sequence[bytes]) -> list[Any]:
    """What COPY ... FROM STDIN (FORMAT binary) is given for some parts."""
    return [HEADER, *parts, TRAILER]
