"""Aggregates that can be computed in parts: per split before the shuffle, per epoch, and merged with what is in state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from resurge.errors import TopologyError
from resurge.model.operator import StreamShape


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


def partial_columns(name: str, aggregate: Aggregate) -> tuple[str, ...]:
    """The columns that hold an aggregate's parts."""
    return (f"{name}__sum", f"{name}__count") if aggregate.kind == "mean" else (name,)


def partial_schema(aggregates: Aggregates, shape: StreamShape, wanted_by: str) -> dict[str, pl.DataType]:
    """The types of the partial columns."""
    schema: dict[str, pl.DataType] = {}
    for name, aggregate in aggregates:
        if aggregate.column is None:
            schema[name] = pl.Int64()
            continue
        kind = shape.column(aggregate.column, wanted_by)
        if aggregate.kind in ("sum", "mean"):
            if not (kind.is_numeric() or kind == pl.Boolean):
                raise TopologyError(
                    f"{wanted_by}: {aggregate.kind} of column {aggregate.column!r} of type {kind}; expected a number: "
                    "cast it in a map before"
                )
            kind = pl.Float64() if kind.is_float() else kind if kind.is_decimal() else pl.Int64()
        for column in partial_columns(name, aggregate):
            schema[column] = pl.Int64() if column.endswith("__count") and aggregate.kind == "mean" else kind
    return schema


def final_schema(aggregates: Aggregates, shape: StreamShape, wanted_by: str) -> dict[str, pl.DataType]:
    """The types of the output columns."""
    partials = partial_schema(aggregates, shape, wanted_by)
    return {name: pl.Float64() if aggregate.kind == "mean" else partials[name] for name, aggregate in aggregates}


def partial_expressions(aggregates: Aggregates, partials: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    """From raw rows to partial columns, inside group_by(...).agg(...); `partials` is their `partial_schema`."""
    expressions = []
    for name, aggregate in aggregates:
        if aggregate.column is None:
            expressions.append(pl.len().cast(pl.Int64).alias(name))
        elif aggregate.kind == "sum":
            expressions.append(pl.col(aggregate.column).cast(partials[name]).sum().alias(name))
        elif aggregate.kind == "mean":
            total = f"{name}__sum"
            expressions.append(pl.col(aggregate.column).cast(partials[total]).sum().alias(total))
            expressions.append(pl.col(aggregate.column).count().cast(pl.Int64).alias(f"{name}__count"))
        else:
            column = pl.col(aggregate.column)
            expressions.append((column.min() if aggregate.kind == "min" else column.max()).alias(name))
    return expressions


def merge_expressions(aggregates: Aggregates) -> list[pl.Expr]:
    """From partial columns to partial columns, inside group_by(...).agg(...)."""
    expressions = []
    for name, aggregate in aggregates:
        for column in partial_columns(name, aggregate):
            part = pl.col(column)
            expressions.append(part.min() if aggregate.kind == "min" else part.max() if aggregate.kind == "max" else part.sum())
    return expressions


def merge_with(aggregates: Aggregates, older: str) -> list[pl.Expr]:
    """Merge each partial column with a nullable column of the same name and a suffix, row by row."""
    expressions = []
    for name, aggregate in aggregates:
        for column in partial_columns(name, aggregate):
            new, old = pl.col(column), pl.col(column + older)
            if aggregate.kind == "min":
                expressions.append(pl.min_horizontal(new, old).alias(column))
            elif aggregate.kind == "max":
                expressions.append(pl.max_horizontal(new, old).alias(column))
            else:
                # A sum over nulls only is 0 in Polars, so a missing older part adds nothing.
                expressions.append((old.fill_null(0) + new).alias(column))
    return expressions


def final_expressions(aggregates: Aggregates) -> list[pl.Expr]:
    """From partial columns to output columns."""
    expressions = []
    for name, aggregate in aggregates:
        if aggregate.kind == "mean":
            parts = pl.col(f"{name}__sum").cast(pl.Float64) / pl.col(f"{name}__count")
            expressions.append(pl.when(pl.col(f"{name}__count") > 0).then(parts).alias(name))
        else:
            expressions.append(pl.col(name))
    return expressions


def all_partial_columns(aggregates: Aggregates) -> Sequence[str]:
    """Every partial column, in order."""
    return [column for name, aggregate in aggregates for column in partial_columns(name, aggregate)]
