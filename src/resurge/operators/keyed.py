"""What keyed operators have in common: a key with its checks, state that is routed by it, and the keys that an epoch touches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from resurge.errors import TopologyError
from resurge.model.operator import StreamShape
from resurge.operators.base import StatefulOperator
from resurge.operators.sorted_runs import TableSpec

KEY_NUMBER = "__key"
TIME = pl.Datetime("us")
Columns = Mapping[str, pl.DataType]
_NONE: Columns = {}


@dataclass(frozen=True)
class KeyedOperator(StatefulOperator):
    """An operator of which all inputs have the same key columns."""

    KIND: ClassVar[str]
    """What errors call it."""

    key: tuple[str, ...]

    @property
    def described(self) -> str:
        """How errors name the operator."""
        return f"{self.KIND} {self.name!r}"

    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The same key columns for every input."""
        return tuple(self.key for _ in self.inputs)

    def key_columns(self, given: StreamShape) -> dict[str, pl.DataType]:
        """The key columns and their types; there must be some, and rows must be fit to be grouped by them."""
        if not self.key:
            raise TopologyError(
                f"{self.described} has no key; expected at least one key column: add a constant one in a map before"
            )
        return {name: given.key_column(name, self.described) for name in self.key}

    def check_time(self, given: StreamShape, time: str | None, why: str = "") -> None:
        """Refuse an input whose event time is another column than the operator's."""
        if given.time_column(f"{self.described}{why}") != time:
            raise TopologyError(f"{self.described} takes time from {time!r}, but its input's event time is {given.event_time!r}")

    def table(
        self,
        given: pl.Schema,
        values: Columns = _NONE,
        *,
        before: Columns = _NONE,
        after: Columns = _NONE,
        bucket: str | None = None,
    ) -> TableSpec:
        """A state table: its own key is the operator's, with further columns before and after it."""
        row_key = {**before, **{name: given[name] for name in self.key}, **after}
        return TableSpec(pl.Schema({**row_key, **values}), tuple(row_key), bucket, self.key)

    def touched(self, *pieces: pl.DataFrame) -> pl.DataFrame:
        """The distinct keys of these rows, in order of first appearance."""
        return pl.concat([rows.select(self.key) for rows in pieces]).unique(maintain_order=True)

    def with_key_number(self, rows: pl.DataFrame, touched: pl.DataFrame) -> pl.DataFrame:
        """The rows, each with the number of its key among those touched."""
        numbers = touched.with_row_index(KEY_NUMBER)
        return rows.join(numbers, on=list(self.key), how="left", nulls_equal=True, maintain_order="left")

    def fixed(self) -> tuple[str, ...]:
        """What else than inputs and key is fixed for the life of a job."""
        return ()

    def signature(self) -> str:
        """Inputs and key are fixed for the life of a job; so are the state's columns, which the tables tell."""
        parts = (", ".join(self.inputs), ", ".join(self.key), *self.fixed())
        return f"{type(self).__name__}({'; '.join(parts)})"


def distinct_columns(described: str, *parts: Columns, advice: str = "rename the key column or the aggregate") -> pl.Schema:
    """All columns in their order; refuse two of one name."""
    columns: dict[str, pl.DataType] = {}
    for part in parts:
        for name, kind in part.items():
            if name in columns:
                raise TopologyError(f"{described} would have two columns called {name!r}; expected one: {advice}")
            columns[name] = kind
    return pl.Schema(columns)


def earlier(watermark_us: int | None, by_us: int) -> int | None:
    """A time before the watermark; None while there is no watermark."""
    return None if watermark_us is None else watermark_us - by_us


def not_before(rows: pl.DataFrame, column: str, low: int | None) -> pl.DataFrame:
    """The rows with a column of at least `low`; all of them if there is no such limit."""
    return rows if low is None else rows.filter(pl.col(column) >= low)
