"""What an operator gets and gives when an epoch is run. Pure: no clock, no chance, no Spark."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from resurge.model.operator import Operator, StreamShape
from resurge.operators.coding import Coded, coded
from resurge.operators.combining import Combiner
from resurge.operators.hashing import Hashes
from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import State

ROW = "__row"
T = TypeVar("T")


@dataclass(frozen=True)
class EpochContext:
    """What an operator may know of the epoch: its number, and its input's watermark when the epoch began and when it ended.

    Rows are judged late by the watermark at the beginning; what is due by the watermark at the end is closed in this epoch.
    """

    epoch: int
    watermark_us: int | None
    closing_us: int | None = None
    lookup: Callable[[], pl.DataFrame] | None = None
    """For a lookup join: its table, as this epoch sees it."""


@dataclass(frozen=True)
class Batch:
    """One input in one epoch, of one or more key groups; each key's rows are in the fixed order (stream, source, row)."""

    schema: pl.Schema
    frames: tuple[pl.DataFrame, ...]
    _shared: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def frame(self) -> pl.DataFrame:
        """All rows in order."""
        filled = [frame for frame in self.frames if frame.height]
        if not filled:
            return pl.DataFrame(schema=self.schema)
        return pl.concat(filled, rechunk=True) if len(filled) > 1 else filled[0].rechunk()

    def coded(self, key: tuple[str, ...]) -> Coded:
        """The rows' keys as integers; computed once for all operators that read the batch."""
        return self.once(("coded", key), lambda: coded(self.frame, key))

    def once(self, what: object, compute: Callable[[], T]) -> T:
        """Something that all operators that read the batch share: computed for the first that asks."""
        if what not in self._shared:
            self._shared[what] = compute()
        found: T = self._shared[what]
        return found


@dataclass(frozen=True)
class Outcome:
    """What came of one epoch; `late` has the late rows of each input, where the operator tells them apart.

    `routing` has, for each output row, the hash of the key that it was made for; without it the key stands in the row.
    """

    output: pl.DataFrame
    changes: Mapping[str, TableDelta] = field(default_factory=dict)
    late_rows: int = 0
    late: tuple[pl.DataFrame, ...] = ()
    routing: Hashes | None = field(default=None, compare=False)


class Traced(NamedTuple):
    """Rows that were made of others, and for each the place of the row that it was made of; places do not go back."""

    rows: pl.DataFrame
    places: npt.NDArray[np.int64]


def traced(made: pl.DataFrame) -> Traced:
    """Rows that were made of numbered ones, and the numbers."""
    return Traced(made.drop(ROW), made.get_column(ROW).to_numpy().astype(np.int64))


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

    def apply_row_by_row(self, frame: pl.DataFrame, context: EpochContext) -> Traced | None:
        """The same, with the row that each was made of alone; None where an output row may depend on several, or it is not known.

        The rows may then be of many key groups: what comes of one does not depend on which others are in the same call.
        """
        return None


@dataclass(frozen=True)
class StatefulOperator(Operator):
    """Keyed: what it makes of a key depends on the key's rows and state."""

    @abstractmethod
    def tables(self, inputs: Sequence[StreamShape]) -> Mapping[str, TableSpec]:
        """The state tables, given the inputs' shapes."""

    @abstractmethod
    def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
        """Take one epoch's input; the state is not changed, the outcome says how it changes.

        The rows may be of any keys. What comes of a key, and in which order, must depend on the rows and the state of the
        keys of its own key group alone: whichever others are in the same call, it is the same to the last bit.
        """

    def combiner(self, shape: StreamShape) -> Combiner | None:
        """How rows of an input may be combined before they are sent to the operator; None if they may not."""
        return None

    @property
    def keeps_key(self) -> bool:
        """Whether key columns of the output have the values of the key that the row was made for."""
        return True

    @property
    def takes_all_keys(self) -> bool:
        """Whether one call may take the rows of many key groups; if not, each key group is a call of its own."""
        return True

    def watermark_delay_us(self) -> int:
        """How far the output's event time may lie behind the input's watermark."""
        return 0
