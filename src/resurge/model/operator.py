"""What the topology and the engine know of an operator: its name, inputs, key, schema and determinism class."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import polars as pl

from resurge.errors import TopologyError


class Determinism(IntEnum):
    """Operator classes of DESIGN section 7, from the most special to the most general."""

    REPEATABLE = 1
    CONVERGENT = 2
    DETERMINISTIC = 3
    ARBITRARY = 4


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
