"""Aggregates that can be computed in parts: per split before the shuffle, per epoch, and merged with what is in state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from resurge.errors import TopologyError
from resurge.model.operator import ORDERED_TYPES, StreamShape


@dataclass(frozen=True)
class Aggregate:
    """One output column of an aggregation; make one with `count`, `sum_`, `min_`, `max_` or `mean`."""

    kind: str
    column: str | None = None


def count() -> Aggregate:
    """How many rows."""
    return Aggregate("count")


def sum_(column: str) -> Aggregate:
    """The sum of a column; nulls are left out."""
    return Aggregate("sum", column)


def min_(column: str) -> Aggregate:
    """The smallest value of a column."""
    return Aggregate("min", column)


def max_(column: str) -> Aggregate:
    """The largest value of a column."""
    return Aggregate("max", column)


def mean(column: str) -> Aggregate:
    """The mean of a column; nulls are left out."""
    return Aggregate("mean", column)


Aggregates = tuple[tuple[str, Aggregate], ...]


def checked_aggregates(aggregates: Mapping[str, Aggregate], wanted_by: str) -> Aggregates:
    """Aggregates by output column, refused where there are none or one is not an aggregate."""
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise TopologyError(
                f"{wanted_by}: {name}={aggregate!r}; expected an aggregate such as count(), sum_('amount') or mean('delay')"
            )
    if not aggregates:
        raise TopologyError(f"{wanted_by} has no aggregate; expected at least one, such as n=count()")
    return tuple(aggregates.items())


class Part(NamedTuple):
    """A column that can be merged with itself; several aggregates may share one."""

    kind: str
    column: str | None

    @property
    def name(self) -> str:
        """The part's column name, the same for every operator."""
        return f"{self.kind}({self.column or ''})"


def parts_of(aggregates: Aggregates) -> list[Part]:
    """The parts that these aggregates are computed from, each once, in order of first use."""
    found: dict[Part, None] = {}
    for _, aggregate in aggregates:
        for kind in ("sum", "count") if aggregate.kind == "mean" else (aggregate.kind,):
            found[Part(kind, aggregate.column)] = None
    return list(found)


def partial_schema(aggregates: Aggregates, shape: StreamShape, wanted_by: str) -> dict[str, pl.DataType]:
    """The types of the partial columns."""
    return {part.name: _part_type(part, shape, wanted_by) for part in parts_of(aggregates)}


def _part_type(part: Part, shape: StreamShape, wanted_by: str) -> pl.DataType:
    if part.column is None:
        return pl.Int64()
    kind = shape.column(part.column, wanted_by)
    if part.kind == "count":
        return pl.Int64()
    if part.kind != "sum":
        if kind.base_type() not in ORDERED_TYPES:
            raise TopologyError(
                f"{wanted_by}: {part.kind}_ of column {part.column!r} of type {kind}; expected a number, string, boolean, binary, "
                "date or time: take a field of it, or cast it, in a map before"
            )
        return kind
    if not (kind.is_numeric() or kind == pl.Boolean):
        raise TopologyError(
            f"{wanted_by}: sum or mean of column {part.column!r} of type {kind}; expected a number: cast it in a map before"
        )
    if isinstance(kind, pl.Decimal):
        return pl.Decimal(38, kind.scale)
    return pl.Float64() if kind.is_float() else pl.Int64()


def final_schema(aggregates: Aggregates, shape: StreamShape, wanted_by: str) -> dict[str, pl.DataType]:
    """The types of the output columns."""
    partials = partial_schema(aggregates, shape, wanted_by)
    return {
        name: pl.Float64() if aggregate.kind == "mean" else partials[Part(aggregate.kind, aggregate.column).name]
        for name, aggregate in aggregates
    }


def partial_expressions(aggregates: Aggregates, partials: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    """From raw rows to partial columns, inside group_by(...).agg(...); `partials` is their `partial_schema`."""
    return [_partial(part, partials[part.name]).alias(part.name) for part in parts_of(aggregates)]


def _partial(part: Part, kind: pl.DataType) -> pl.Expr:
    if part.column is None:
        return pl.len().cast(pl.Int64)
    column = pl.col(part.column)
    if part.kind == "count":
        return column.count().cast(pl.Int64)
    if part.kind == "sum":
        return _sum(column, kind)
    return column.min() if part.kind == "min" else column.max()


def _sum(column: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """A sum of this type; one that does not fit is an error, where Polars alone would wrap around."""
    if kind.is_integer():
        return column.cast(pl.Int128).sum().cast(kind)
    # Cast first: Polars would sum small types into types of its own choice, and parts must agree everywhere.
    total = column.cast(kind).sum()
    if kind.is_decimal():
        # About the same sum in floating point, because that one fails to become a decimal where the exact one would wrap.
        return pl.when(column.cast(pl.Float64).sum().cast(kind).is_not_null()).then(total)
    return total


def merge_expressions(aggregates: Aggregates, kinds: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    """From partial columns to partial columns, inside group_by(...).agg(...)."""
    return [_merge(part, kinds[part.name]) for part in parts_of(aggregates)]


def _merge(part: Part, kind: pl.DataType) -> pl.Expr:
    column = pl.col(part.name)
    if part.kind == "sum":
        return _sum(column, kind)
    return column.min() if part.kind == "min" else column.max() if part.kind == "max" else column.sum()


def merge_with(aggregates: Aggregates, older: str, kinds: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    """Merge each partial column with a nullable column of the same name and the suffix `older`, row by row."""
    expressions = []
    for part in parts_of(aggregates):
        new, old = pl.col(part.name), pl.col(part.name + older)
        if part.kind == "min":
            merged = pl.min_horizontal(new, old)
        elif part.kind == "max":
            merged = pl.max_horizontal(new, old)
        elif part.kind == "sum" and kinds[part.name].is_integer():
            merged = (new.cast(pl.Int128) + old.fill_null(0)).cast(kinds[part.name])
        else:
            # A sum over nulls only is 0 in Polars, so a missing older part adds nothing.
            merged = old.fill_null(0) + new
        expressions.append(merged.alias(part.name))
    return expressions


def final_expressions(aggregates: Aggregates) -> list[pl.Expr]:
    """From partial columns to output columns."""
    return [_final(aggregate).alias(name) for name, aggregate in aggregates]


def final_columns(aggregates: Aggregates, parts: pl.DataFrame) -> list[pl.Series]:
    """The output columns of a table of partial columns; quicker than expressions where nothing is computed."""
    if any(aggregate.kind == "mean" for _, aggregate in aggregates):
        return parts.select(final_expressions(aggregates)).get_columns()
    return [parts.get_column(Part(aggregate.kind, aggregate.column).name).alias(name) for name, aggregate in aggregates]


def _final(aggregate: Aggregate) -> pl.Expr:
    if aggregate.kind != "mean":
        return pl.col(Part(aggregate.kind, aggregate.column).name)
    rows = pl.col(Part("count", aggregate.column).name)
    return pl.when(rows > 0).then(pl.col(Part("sum", aggregate.column).name).cast(pl.Float64) / rows)


def all_partial_columns(aggregates: Aggregates) -> list[str]:
    """Every partial column, in order."""
    return [part.name for part in parts_of(aggregates)]
