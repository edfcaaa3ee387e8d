"""Polars types as table formats have them: no unsigned numbers, no dictionaries, times in microseconds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from resurge.errors import SinkError

_REFUSED = pl.UInt64 | pl.Int128 | pl.Time | pl.Duration | pl.Object | pl.Null


@dataclass(frozen=True)
class LakeTypes:
    """The types of one table format; `wider` has the numbers that it does not know, and what they are written as."""

    system: str
    wider: Mapping[type[pl.DataType], pl.DataType]

    def schema(self, schema: pl.Schema) -> pl.Schema:
        """The columns as they are written."""
        return pl.Schema({name: self._written(name, kind) for name, kind in schema.items()})

    def frame(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows as they are written."""
        wanted = self.schema(frame.schema)
        return frame if wanted == frame.schema else frame.cast(wanted)

    def _written(self, name: str, given: Any) -> pl.DataType:
        kind: pl.DataType = given() if isinstance(given, type) else given
        if type(kind) in self.wider:
            return self.wider[type(kind)]
        if isinstance(kind, pl.Categorical | pl.Enum):
            return pl.String()
        if isinstance(kind, pl.Datetime):
            return pl.Datetime("us", "UTC" if kind.time_zone else None)
        if isinstance(kind, pl.List | pl.Array):
            return pl.List(self._written(name, kind.inner))
        if isinstance(kind, pl.Struct):
            return pl.Struct({field.name: self._written(name, field.dtype) for field in kind.fields})
        if isinstance(kind, _REFUSED):
            raise SinkError(
                f"column {name!r} is {kind}, which {self.system} has no type for: cast it, such as to Int64 or String"
            )
        return kind


DELTA = LakeTypes("Delta Lake", {pl.UInt8: pl.Int16(), pl.UInt16: pl.Int32(), pl.UInt32: pl.Int64()})
ICEBERG = LakeTypes(
    "Iceberg",
    {pl.Int8: pl.Int32(), pl.Int16: pl.Int32(), pl.UInt8: pl.Int32(), pl.UInt16: pl.Int32(), pl.UInt32: pl.Int64()},
)
