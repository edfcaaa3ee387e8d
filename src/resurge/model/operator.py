"""What the topology and the engine know of an operator: its name, inputs, key, schema and determinism class."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import polars as pl

from resurge.errors import TopologyError


class Determinism(IntEnum):
    """Operator classes, from the most special to the most general."""

    REPEATABLE = 1
    CONVERGENT = 2
    DETERMINISTIC = 3
    ARBITRARY = 4


KEY_TYPES = frozenset(
    {
        *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64),
        *(pl.Float32, pl.Float64, pl.Decimal, pl.Boolean, pl.String, pl.Binary),
        *(pl.Date, pl.Time, pl.Datetime, pl.Duration),
    }
)
"""The types that rows can be grouped by: equal values hash alike in every process."""

ORDERED_TYPES = KEY_TYPES | {pl.Enum}
"""The types of which there is a smallest and a largest value, the same in every process."""

_KEY_ADVICE: dict[type[pl.DataType], str] = {
    pl.Categorical: "cast it to pl.String in a map before",
    pl.Enum: "cast it to pl.String in a map before",
    pl.Struct: "make a column of each field that you need in a map before, with .struct.field(...)",
    pl.List: "make one row of each item in a flat_map before, or one string of all items with .list.join(...)",
    pl.Array: "make one row of each item in a flat_map before",
}


@dataclass(frozen=True)
class StreamShape:
    """What is known of a stream before it runs: its columns and which of them is the event time."""

    schema: pl.Schema
    event_time: str | None

    def column(self, name: str, wanted_by: str) -> pl.DataType:
        """The type of a column, or an error that lists the columns there are."""
        if name not in self.schema:
            raise TopologyError(
                f"{wanted_by} uses column {name!r}, but its input has {', '.join(self.schema) or 'no columns'}: "
                "name one of these, or add the column in a map before it"
            )
        return self.schema[name]

    def key_column(self, name: str, wanted_by: str) -> pl.DataType:
        """The type of a column that rows are grouped by, or an error if rows cannot be grouped by it."""
        kind = self.column(name, wanted_by)
        if kind.base_type() not in KEY_TYPES:
            advice = _KEY_ADVICE.get(kind.base_type(), "use a column of another type, or make one in a map before")
            raise TopologyError(
                f"{wanted_by}: key column {name!r} is {kind}; expected a number, string, boolean, binary, date or time: {advice}"
            )
        return kind

    def time_column(self, wanted_by: str) -> str:
        """The event-time column, or an error that says how to declare one."""
        if self.event_time is None:
            raise TopologyError(
                f"{wanted_by} needs event time, but its input declares none: pass event_time=... to the source or the map"
            )
        return self.event_time


@dataclass(frozen=True)
class Operator(ABC):
    """One operator of a topology: plain data; `inputs` are names of other operators."""

    name: str
    inputs: tuple[str, ...]

    @property
    @abstractmethod
    def determinism(self) -> Determinism:
        """The operator's class: what a replay of the same input may change."""

    @abstractmethod
    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """The output's shape given the inputs', or a TopologyError."""

    def keys(self) -> tuple[tuple[str, ...], ...] | None:
        """The key columns per input, or None for an operator without key."""
        return None

    def signature(self) -> str:
        """What must not change between two runs of a job; compared as text."""
        return f"{type(self).__name__}({', '.join(self.inputs)})"
