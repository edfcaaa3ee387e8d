"""What an operator gets and gives when an epoch is run. Pure: no clock, no chance, no Spark."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from resurge.model.operator import Operator, StreamShape
from resurge.operators.coding import Coded, coded
from resurge.operators.state import State, TableDelta, TableSpec

ROW = "__row"


@dataclass(frozen=True)
class EpochContext:
    """What an operator may know of the epoch: its number, and its input's watermark when the epoch began and when it ended.

    Rows are judged late by the watermark at the beginning; what is due by the watermark at the end is closed in this epoch.
    """

    epoch: int
    watermark_us: int | None
    closing_us: int | None = None


@dataclass(frozen=True)
class Batch:
    """One input of one partition in one epoch: frames in the fixed order (stream, source partition, row)."""

    schema: pl.Schema
    frames: tuple[pl.DataFrame, ...]
    _coded: dict[tuple[str, ...], Coded] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def frame(self) -> pl.DataFrame:
        """All rows in order."""
        filled = [frame for frame in self.frames if frame.height]
        if not filled:
            return pl.DataFrame(schema=self.schema)
        return pl.concat(filled) if len(filled) > 1 else filled[0]

    def coded(self, key: tuple[str, ...]) -> Coded:
        """The rows' keys as integers; computed once for all operators that read the batch."""
        if key not in self._coded:
            self._coded[key] = coded(self.frame, key)
        return self._coded[key]


@dataclass(frozen=True)
class Outcome:
    """What one partition made of one epoch; `late` has the late rows of each input, where the operator tells them apart."""

    output: pl.DataFrame
    changes: Mapping[str, TableDelta] = field(default_factory=dict)
    late_rows: int = 0
    late: tuple[pl.DataFrame, ...] = ()


def numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with their numbers, so that `left_out` can tell which are missing later."""
    return rows.with_row_index(ROW)


def left_out(rows: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    """The rows whose numbers are not among the kept ones: the late rows."""
    if kept.height == rows.height:
        return rows.clear()
    return rows.filter(~pl.int_range(pl.len()).is_in(kept.get_column(ROW).cast(pl.Int64).implode()))


@dataclass(frozen=True)
class StatelessOperator(Operator):
    """Works on one frame at a time and remembers nothing."""

    @abstractmethod
    def apply(self, frame: pl.DataFrame, context: EpochContext) -> pl.DataFrame:
        """The output rows of these input rows."""


@dataclass(frozen=True)
class StatefulOperator(Operator):
    """Keyed: each partition has its own state tables."""

    @abstractmethod
    def tables(self, inputs: Sequence[StreamShape]) -> Mapping[str, TableSpec]:
        """The state tables, given the inputs' shapes."""

    @abstractmethod
    def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
        """Take one epoch's input of one partition; the state is not changed, the outcome says how it changes."""

    @property
    def keeps_key(self) -> bool:
        """Whether key columns of the output have the values of the key that the row was made for."""
        return True

    def watermark_delay_us(self) -> int:
        """How far the output's event time may lie behind the input's watermark."""
        return 0
