"""A lookup join: rows of a stream enriched from a table outside, as it was when a version of it was taken."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from resurge.errors import JobError, TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.base import EpochContext, StatelessOperator, Traced, numbered, traced


@dataclass(frozen=True)
class LookupJoin(StatelessOperator):
    """Adds the columns of the table's row with the same key; `table` is a connector with `schema()` and `read()`.

    A version of the table is taken for every `refresh_epochs` epochs, and kept as long as one of them can be run again: every
    replay of an epoch sees the rows that it saw the first time.
    """

    table: Any
    on: tuple[str, ...]
    how: str = "left"
    refresh_epochs: int = 100

    @property
    def determinism(self) -> Determinism:
        """The version that an epoch sees is kept."""
        return Determinism.REPEATABLE

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """The stream's columns, then the table's without the key."""
        (given,) = inputs
        found, described = self.table.schema(), f"lookup {self.name!r}"
        if self.how not in ("left", "inner"):
            raise TopologyError(f"{described}: how is {self.how!r}; expected 'left' or 'inner'")
        if self.refresh_epochs < 1 or not self.on:
            raise TopologyError(f"{described}: expected at least one key column and refresh_epochs of at least 1")
        for name in self.on:
            if name not in found:
                raise TopologyError(f"{described}: the table has no column {name!r}; it has {', '.join(found)}")
            if given.column(name, described) != found[name]:
                raise TopologyError(f"{described}: {name!r} is {given.schema[name]} in the stream and {found[name]} in the table")
        added = {name: kind for name, kind in found.items() if name not in self.on}
        both = sorted(set(added) & set(given.schema))
        if both:
            raise TopologyError(f"{described}: stream and table both have {both[0]!r}; rename it in a map before")
        return StreamShape(pl.Schema({**given.schema, **added}), given.event_time)

    def last_epoch(self, epoch: int) -> int:
        """The last epoch that sees the same version of the table as this one."""
        return epoch // self.refresh_epochs * self.refresh_epochs + self.refresh_epochs - 1

    def apply(self, frame: pl.DataFrame, context: EpochContext) -> pl.DataFrame:
        """The rows with what the table says of them, in their order."""
        if context.lookup is None:
            raise JobError(f"lookup {self.name!r} was run where no version of its table can be had")
        how = "left" if self.how == "left" else "inner"
        return frame.join(context.lookup(), on=list(self.on), how=how, maintain_order="left_right")  # type: ignore[arg-type]

    def apply_row_by_row(self, frame: pl.DataFrame, context: EpochContext) -> Traced:
        """The table has at most one row for each."""
        return traced(self.apply(numbered(frame), context))
