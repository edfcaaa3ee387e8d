"""Combining before the shuffle: one row per key (and pane of event time) and split, instead of one per input row.

Windows over the same stream and key share one combiner: its pane is the greatest common divisor of their sizes and
slides, its parts are all that any of them needs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from resurge.model.operator import StreamShape
from resurge.operators.aggregates import Aggregates, partial_expressions, partial_schema
from resurge.operators.failures import failed

PANE = "__pane"


@dataclass(frozen=True)
class Combiner:
    """How rows become parts for some operators: group by key and, where there is a pane, by the pane of the event time."""

    key: tuple[str, ...]
    aggregates: Aggregates
    time: str | None = None
    pane_us: int | None = None
    operators: tuple[str, ...] = ()

    def schema(self, shape: StreamShape) -> pl.Schema:
        """The columns of the parts."""
        columns: dict[str, pl.DataType] = {name: shape.schema[name] for name in self.key}
        if self.pane_us is not None:
            columns[PANE] = pl.Int64()
        columns.update(partial_schema(self.aggregates, shape, "a combiner"))
        return pl.Schema(columns)

    def combine(self, frame: pl.DataFrame, shape: StreamShape, beside: Sequence[str] = ()) -> pl.DataFrame:
        """The parts of these rows, in order of first appearance of their group; only rows with the same columns `beside`."""
        partials = partial_schema(self.aggregates, shape, "a combiner")
        groups: list[pl.Expr] = [pl.col(name) for name in (*beside, *self.key)]
        if self.time is not None and self.pane_us is not None:
            groups.append((time_us(self.time) // self.pane_us * self.pane_us).alias(PANE))
        try:
            return frame.group_by(groups, maintain_order=True).agg(partial_expressions(self.aggregates, partials))
        except pl.exceptions.PolarsError as error:
            raise failed(", ".join(self.operators), "before the shuffle", error) from error


def time_us(column: str) -> pl.Expr:
    """An event-time column as whole microseconds."""
    return pl.col(column).dt.epoch("us")


def shared(combiners: Sequence[Combiner]) -> Combiner:
    """One combiner that serves all of these, which have the same key and time column."""
    first = combiners[0]
    panes = [combiner.pane_us for combiner in combiners if combiner.pane_us is not None]
    aggregates = {aggregate: name for combiner in combiners for name, aggregate in combiner.aggregates}
    named = tuple((f"part{index}", aggregate) for index, aggregate in enumerate(aggregates))
    operators = tuple(name for combiner in combiners for name in combiner.operators)
    return Combiner(first.key, named, first.time, math.gcd(*panes) if panes else None, operators)
