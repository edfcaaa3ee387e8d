"""Operators without state: sources, transforms and unions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from resurge.errors import JobError, TopologyError
from resurge.model.operator import Determinism, Operator, StreamShape
from resurge.operators.base import EpochContext, StatelessOperator, Traced, numbered, traced
from resurge.operators.row_by_row import LengthsDifferError, is_same_in_pieces, leaves_rows_in_place, takes_rows_together

FrameFunction = Callable[[pl.DataFrame], pl.DataFrame]
TRANSFORMS = ("map", "filter", "flat_map")


@dataclass(frozen=True)
class SourceOperator(Operator):
    """Where rows enter; `source` is a connector, of which operators know the schema only."""

    source: Any
    schema: pl.Schema
    event_time: str | None = None
    watermark_us: int = 0
    routes_bad_rows: bool = False
    where: pl.Expr | None = None

    @property
    def determinism(self) -> Determinism:
        """A logged epoch can be read again."""
        return Determinism.REPEATABLE

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """The connector's schema."""
        shape = StreamShape(self.schema, self.event_time)
        if self.event_time is not None:
            _check_time(shape, self.event_time, f"source {self.name!r}")
        if self.where is not None:
            self._check_condition(shape)
        return shape

    def _check_condition(self, shape: StreamShape) -> None:
        described = f"source {self.name!r}"
        if not isinstance(self.where, pl.Expr):
            raise TopologyError(f"{described}: where is {self.where!r}; expected a Polars condition, such as pl.col('n') > 0")
        Transform(f"where of {self.name}", (), "filter", None, (self.where,)).shape([shape])

    def taken(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that the source's condition lets in."""
        return rows if self.where is None else rows.filter(self.where)

    def signature(self) -> str:
        """The connector's own signature."""
        return f"Source({self.source.signature()}; {self.event_time}; {self.watermark_us})"


@dataclass(frozen=True)
class BadRows(Operator):
    """The malformed rows of a source, as a stream of their own."""

    schema: pl.Schema

    @property
    def determinism(self) -> Determinism:
        """As the source."""
        return Determinism.REPEATABLE

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """Where the row stood, its text, and what was wrong."""
        return StreamShape(self.schema, None)


@dataclass(frozen=True)
class LateSide(Operator):
    """The late rows of one input of a keyed operator that tells them apart itself, as a stream of their own."""

    given: StreamShape
    side: int = 0

    @property
    def determinism(self) -> Determinism:
        """Which rows are late depends on the watermarks, which are logged."""
        return Determinism.DETERMINISTIC

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """That of the keyed operator's input."""
        return self.given


@dataclass(frozen=True)
class Transform(StatelessOperator):
    """map, filter or flat_map: a function on a table, or Polars expressions.

    `per_row` is what the user declares of a map's function: row by row, it makes one row of each, whichever others are beside it.
    """

    kind: str
    function: FrameFunction | None
    expressions: tuple[pl.Expr, ...] = ()
    schema: pl.Schema | None = None
    event_time: str | None = None
    deterministic: bool = True
    per_row: bool = False

    @property
    def determinism(self) -> Determinism:
        """Repeatable unless the user says that the function is not deterministic."""
        return Determinism.REPEATABLE if self.deterministic else Determinism.ARBITRARY

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """What the function makes of an empty table, or the schema that the user gave."""
        (given,) = inputs
        described = f"{self.kind} {self.name!r}"
        if self.expressions and self.deterministic:
            self._check_row_by_row(given.schema, described)
        if self.per_row:
            self._check_per_row(given.schema, described)
        schema = self._checked_schema(given.schema, described)
        time = self.event_time or given.event_time
        shape = StreamShape(schema, time if time in schema else None)
        if self.event_time is not None:
            _check_time(shape, self.event_time, described)
        return shape

    def _checked_schema(self, given: pl.Schema, described: str) -> pl.Schema:
        """The columns that come out; those that are declared must be those that are made."""
        schema = self._inferred(given, described)
        if self.schema is not None and schema != self.schema:
            raise TopologyError(
                f"{described} makes {_columns(schema)} of an empty table, but schema= declares {_columns(self.schema)}; "
                "expected the same columns in the same order: correct one of them"
            )
        if self.kind == "filter" and schema != given:
            raise TopologyError(
                f"{described} makes {_columns(schema)} of {_columns(given)}; expected a filter to keep the columns: use a map"
            )
        if not schema:
            raise TopologyError(f"{described} makes no columns; expected at least one")
        return schema

    def _check_row_by_row(self, given: pl.Schema, described: str) -> None:
        try:
            together = takes_rows_together(self.expressions, self._run, given)
        except LengthsDifferError as error:
            raise TopologyError(
                f"{described} makes columns of different lengths ({error}); expected one value of each column per row: "
                "a flat_map makes one row per element of list columns by itself, so leave out explode()"
            ) from error
        if together is not None:
            raise TopologyError(
                f"{described}: {together} takes several rows together, so the result would depend on where epochs are cut; "
                "expected expressions of one row: use aggregate(...), window(...), session(...) or process(...) for what goes beyond "
                "a row, or declare deterministic=False if any cut will do"
            )

    def _check_per_row(self, given: pl.Schema, described: str) -> None:
        if self.kind != "map" or self.function is None:
            raise TopologyError(
                f"{described} declares per_row=True; expected that of a map with a function only: expressions are taken row by row "
                "anyway, so leave it out"
            )
        if self.deterministic and not is_same_in_pieces(lambda table: self._one_for_each(self._run(table), table), given):
            raise TopologyError(
                f"{described} declares per_row=True, but what it makes of a made-up row depends on the rows beside it; expected "
                "each row to be made of one row alone: leave per_row out, or use aggregate(...), window(...) or process(...)"
            )

    def _one_for_each(self, made: pl.DataFrame, given: pl.DataFrame) -> pl.DataFrame:
        if made.height != given.height:
            raise JobError(
                f"map {self.name!r} declares per_row=True, but made {made.height} rows of {given.height}; expected one of each, in "
                "their order: leave per_row out, or use a filter or a flat_map"
            )
        return made

    def _inferred(self, schema: pl.Schema, described: str) -> pl.Schema:
        try:
            return self._run(pl.DataFrame(schema=schema)).schema
        except Exception as error:
            if self.schema is not None and self.function is not None:
                return self.schema
            raise TopologyError(
                f"{described} fails on an empty table with columns {', '.join(schema)}: {_first_line(error)}; "
                "expected an operation that fits these columns, or pass schema=..."
            ) from error

    def apply(self, frame: pl.DataFrame, context: EpochContext) -> pl.DataFrame:
        """The transformed rows; a function that declares its columns is not asked for those of no rows."""
        if not frame.height and self.schema is not None:
            return pl.DataFrame(schema=self.schema)
        return self._run(frame)

    def apply_row_by_row(self, frame: pl.DataFrame, context: EpochContext) -> Traced | None:
        """The transformed rows, where expressions take each row for itself; a function is not looked into, but may be declared so."""
        if self.per_row:
            return Traced(self._one_for_each(self.apply(frame, context), frame), np.arange(frame.height))
        if not self._leaves_rows_in_place:
            return None
        if self.kind == "filter":
            chosen = frame.select(pl.all_horizontal(*self.expressions).fill_null(False)).to_series()
            kept = np.flatnonzero(np.broadcast_to(chosen.to_numpy(), (frame.height,)))
            return Traced(frame[kept] if kept.size < frame.height else frame, kept)
        made = frame.select(*self.expressions)
        if self.kind == "flat_map":
            return traced(_one_row_per_element(numbered(made)))
        return Traced(made, np.arange(frame.height))

    @cached_property
    def _leaves_rows_in_place(self) -> bool:
        """Whether each row is transformed for itself and stays in its place, as far as that can be told."""
        if self.function is not None:
            return False
        return all(map(leaves_rows_in_place, self.expressions)) and (
            self.kind == "filter" or any(expression.meta.root_names() for expression in self.expressions)
        )

    def _run(self, frame: pl.DataFrame) -> pl.DataFrame:
        if self.function is not None:
            made = self.function(frame)
            if not isinstance(made, pl.DataFrame):
                raise JobError(f"{self.kind} {self.name!r} returned {type(made).__name__}; expected a polars.DataFrame")
            return made
        if self.kind == "filter":
            return frame.filter(*self.expressions)
        made = frame.select(*self.expressions)
        return _one_row_per_element(made) if self.kind == "flat_map" else made


@dataclass(frozen=True)
class Union(Operator):
    """All rows of several streams of the same schema, in the order of the streams."""

    @property
    def determinism(self) -> Determinism:
        """Adds nothing of its own."""
        return Determinism.REPEATABLE

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """The common schema; the event time where all agree."""
        first = inputs[0]
        for name, other in zip(self.inputs[1:], inputs[1:], strict=True):
            if other.schema != first.schema:
                raise TopologyError(
                    f"union {self.name!r}: {name!r} has {_columns(other.schema)}, but {self.inputs[0]!r} has "
                    f"{_columns(first.schema)}; expected the same columns: align them with a map before"
                )
        agreed = all(other.event_time == first.event_time for other in inputs)
        return StreamShape(first.schema, first.event_time if agreed else None)


def _one_row_per_element(frame: pl.DataFrame) -> pl.DataFrame:
    """List columns become one row per element; a row whose list is empty or null gives none."""
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    return frame.filter(pl.col(lists[0]).list.len() > 0).explode(lists) if lists else frame


def _check_time(shape: StreamShape, column: str, described: str) -> None:
    kind = shape.column(column, described)
    if kind.base_type() != pl.Datetime:
        raise TopologyError(
            f"{described}: event time {column!r} is {kind}; expected Datetime: convert it in a map and name it there"
        )


def _columns(schema: pl.Schema) -> str:
    return "(" + ", ".join(f"{name}: {kind}" for name, kind in schema.items()) + ")"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
