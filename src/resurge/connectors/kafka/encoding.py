"""Rows as Kafka records: JSON values and keys, encoded column by column where the rows are made."""

import io
from collections.abc import Sequence

import polars as pl

from resurge.errors import SinkError

KEY, VALUE = "key", "value"


def check_columns(topic: str, schema: pl.Schema, key: Sequence[str], *, raw: bool) -> None:
    """Refuse rows that cannot be written, before the first epoch."""
    missing = [name for name in key if name not in schema]
    if missing:
        raise SinkError(f"topic {topic!r}: the key column {missing[0]!r} is not among the query's: {', '.join(schema)}")
    if raw and schema.get(VALUE) not in (pl.String(), pl.Binary()):
        raise SinkError(f"topic {topic!r}: raw records need a column 'value' of String or Binary; the query has {dict(schema)}")


def encoded(frame: pl.DataFrame, key: Sequence[str], *, raw: bool) -> bytes:
    """The records of some rows as an Arrow table of keys and values."""
    values = frame[VALUE].cast(pl.Binary) if raw else _json(frame)
    columns = [values.alias(VALUE)]
    if key:
        columns.insert(0, _key(frame, key).alias(KEY))
    buffer = io.BytesIO()
    pl.DataFrame(columns).write_ipc(buffer, compression="lz4")
    return buffer.getvalue()


def records(payload: bytes) -> tuple[list[bytes | None], list[bytes | None]]:
    """Keys and values of encoded rows."""
    frame = pl.read_ipc(io.BytesIO(payload), use_pyarrow=False)
    values = frame[VALUE].to_list()
    return (frame[KEY].to_list() if KEY in frame.columns else [None] * len(values)), values


def _key(frame: pl.DataFrame, key: Sequence[str]) -> pl.Series:
    if len(key) == 1 and frame.schema[key[0]] in (pl.String(), pl.Binary()):
        return frame[key[0]].cast(pl.Binary)
    return _json(frame.select(key))


def _json(frame: pl.DataFrame) -> pl.Series:
    """One JSON object per row: times in ISO 8601, bytes in base 64, as our own sources read them."""
    columns = [_plain(name, kind) for name, kind in frame.schema.items()]
    return frame.select(pl.struct(columns).struct.json_encode()).to_series().cast(pl.Binary)


def _plain(name: str, kind: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if isinstance(kind, pl.Datetime) and kind.time_zone is None:
        return column.dt.strftime("%Y-%m-%dT%H:%M:%S%.6f")
    if isinstance(kind, pl.Binary):
        return column.bin.encode("base64")
    if isinstance(kind, pl.Categorical | pl.Enum):
        return column.cast(pl.String)
    return column
