"""Polars types as Delta Lake has them: no unsigned numbers, no dictionaries, times in microseconds."""

import polars as pl

from resurge.errors import SinkError

_WIDER: dict[type[pl.DataType], pl.DataType] = {pl.UInt8: pl.Int16(), pl.UInt16: pl.Int32(), pl.UInt32: pl.Int64()}


def delta_type(name: str, kind: pl.DataType) -> pl.DataType:
    """The type that a column is written as."""
    if type(kind) in _WIDER:
        return _WIDER[type(kind)]
    if isinstance(kind, pl.Categorical | pl.Enum):
        return pl.String()
    if isinstance(kind, pl.Datetime):
        return pl.Datetime("us", "UTC" if kind.time_zone else None)
    if isinstance(kind, pl.UInt64 | pl.Time | pl.Duration | pl.Object | pl.Null):
        raise SinkError(f"column {name!r} is {kind}, which Delta Lake has no type for: cast it, such as to Int64 or String")
    return kind


def delta_schema(schema: pl.Schema) -> pl.Schema:
    """The columns as they are written."""
    return pl.Schema({name: delta_type(name, kind) for name, kind in schema.items()})


def delta_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows as they are written."""
    wanted = delta_schema(frame.schema)
    return frame if wanted == frame.schema else frame.cast(wanted)
