"""Tumbling and sliding windows in event time, computed from panes that all windows over a stream share."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from resurge.errors import TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.aggregates import (
    Aggregates,
    all_partial_columns,
    count,
    final_expressions,
    final_schema,
    merge_with,
    partial_schema,
)
from resurge.operators.base import Batch, EpochContext, Outcome, StatefulOperator, StatelessOperator
from resurge.operators.combining import PANE, Combiner, time_us
from resurge.operators.state import KeyedTable, State, TableDelta, TableSpec
from resurge.operators.window_sums import windowed

START, END = "window_start", "window_end"
_OLD = "__old"
_TIME = pl.Datetime("us")
EMIT_MODES = ("update", "final")


@dataclass(frozen=True)
class WindowSpan:
    """How long a window is, how often one starts, and how long after its end rows are still taken."""

    size_us: int
    slide_us: int
    lateness_us: int = 0

    @property
    def pane_us(self) -> int:
        """The longest pane of which every window is a whole number."""
        return math.gcd(self.size_us, self.slide_us)

    def last_start(self, time: pl.Expr) -> pl.Expr:
        """The start of the last window that a time (in microseconds) falls into."""
        return time // self.slide_us * self.slide_us

    def closed_before(self, watermark_us: int) -> int:
        """Windows that start before this are closed: a window is closed once its end plus lateness is not after the watermark."""
        return watermark_us - self.lateness_us - self.size_us + 1


def is_late(span: WindowSpan, time: pl.Expr, watermark_us: int) -> pl.Expr:
    """True for a time all of whose windows are closed, or that falls between two windows that are, or that is missing."""
    # A row without time belongs to no window: it counts as late rather than vanish.
    return (span.last_start(time) < span.closed_before(watermark_us)).fill_null(True)


@dataclass(frozen=True)
class Window(StatefulOperator):
    """Aggregates per key and window; emits changed windows in every epoch (update), or each window once (final)."""

    key: tuple[str, ...]
    span: WindowSpan
    aggregates: Aggregates
    emit: str = "update"

    @property
    def determinism(self) -> Determinism:
        """Restarted from empty state, a time window converges."""
        return Determinism.CONVERGENT

    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The key columns of its only input."""
        return (self.key,)

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """Key, window bounds, aggregates; the event time is the window's end."""
        (given,) = inputs
        described = f"window {self.name!r}"
        if not self.key:
            raise TopologyError(f"{described} has no key; expected at least one key column: add a constant one in a map before")
        if self.emit not in EMIT_MODES:
            raise TopologyError(f"{described}: emit is {self.emit!r}; expected one of {', '.join(EMIT_MODES)}")
        if self.span.slide_us > self.span.size_us:
            raise TopologyError(
                f"{described} slides by more than its size, so rows between two windows would be lost; "
                "expected a slide of at most the size"
            )
        given.time_column(described)
        columns = {name: given.key_column(name, described) for name in self.key}
        columns.update({START: _TIME, END: _TIME})
        for name, kind in final_schema(self.aggregates, given, described).items():
            if name in columns:
                raise TopologyError(f"{described}: aggregate {name!r} has the name of a key or window column; rename it")
            columns[name] = kind
        return StreamShape(pl.Schema(columns), END)

    def combiner(self, shape: StreamShape) -> Combiner:
        """Parts per key and pane; rows are counted too, so that late ones can be."""
        counted = (*self.aggregates, ("", count()))
        return Combiner(self.key, counted, shape.time_column(f"window {self.name!r}"), self.span.pane_us, (self.name,))

    def tables(self, inputs: Sequence[StreamShape]) -> Mapping[str, TableSpec]:
        """Parts per key and window; a window's start is its bucket, so that closed windows go at once."""
        (given,) = inputs
        columns: dict[str, pl.DataType] = {name: given.schema[name] for name in self.key}
        columns[START] = pl.Int64()
        columns.update(partial_schema(self.aggregates, given, f"window {self.name!r}"))
        return {"windows": TableSpec(pl.Schema(columns), (*self.key, START), START)}

    def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
        """Add the epoch's panes to the open windows, emit, and close what the watermark has passed."""
        table = state["windows"]
        open_from = self._open_from(context.watermark_us)
        changed = self._with_state(table, self._changed(inputs[0], open_from))
        low = self._open_from(context.closing_us)
        kept = changed if low is None else changed.filter(pl.col(START) >= low)
        emitted = changed if self.emit == "update" else self._closed(table, changed, low)
        late_rows = self._late_rows(inputs[0].frame, open_from)
        return Outcome(self._output(emitted), {"windows": TableDelta(kept, low=low)}, late_rows)

    def _with_state(self, table: KeyedTable, changed: pl.DataFrame) -> pl.DataFrame:
        """Merge the epoch's parts with those in state; windows that start after the last one in state are new."""
        last = table.highest_bucket
        if last is None or not changed.height:
            return changed
        known = changed.filter(pl.col(START) <= last)
        if not known.height:
            return changed
        older = table.lookup(known).rename(lambda name: name + _OLD)
        merged = known.hstack(older).with_columns(merge_with(self.aggregates, _OLD, changed.schema)).select(changed.columns)
        return pl.concat([merged, changed.filter(pl.col(START) > last)])

    def _open_from(self, watermark_us: int | None) -> int | None:
        return None if watermark_us is None else self.span.closed_before(watermark_us)

    def _late_rows(self, panes: pl.DataFrame, open_from: int | None) -> int:
        if not panes.height:
            return 0
        late = pl.col(PANE).is_null()
        if open_from is not None:
            late |= self.span.last_start(pl.col(PANE)) < open_from
        return int(panes.select(pl.col("count()").filter(late).sum()).item())

    def _closed(self, table: KeyedTable, changed: pl.DataFrame, low: int | None) -> pl.DataFrame:
        """The windows that this epoch closes."""
        if low is None:
            return changed.clear()
        closing = TableDelta(changed.filter(pl.col(START) < low))
        return table.apply(closing).between(None, low).sort(START, *self.key)

    def _changed(self, batch: Batch, open_from: int | None) -> pl.DataFrame:
        """The epoch's own parts per key and open window, grouped by one integer for key and window."""
        panes = batch.frame
        parts = all_partial_columns(self.aggregates)
        if panes.get_column(PANE).null_count() == panes.height:
            schema = {name: panes.schema[name] for name in (*self.key, *parts)}
            return pl.DataFrame(schema=schema | {START: pl.Int64()}).select(*self.key, START, *parts)
        keys = batch.coded(self.key)
        pane_us, codes = panes.get_column(PANE), keys.codes
        if pane_us.null_count():
            timed = pane_us.is_not_null()
            panes, pane_us, codes = panes.filter(timed), pane_us.filter(timed), codes[timed.to_numpy()]
        size, slide = self.span.size_us, self.span.slide_us
        found = windowed(panes, pane_us.to_numpy(), codes, size, slide, open_from, self.aggregates)
        starts = pl.Series(START, found.windows * slide)
        changed: pl.DataFrame = keys.keys[found.codes]
        return changed.with_columns(starts, *found.parts.get_columns())

    def _output(self, rows: pl.DataFrame) -> pl.DataFrame:
        start = pl.col(START)
        bounds = [start.cast(_TIME).alias(START), (start + self.span.size_us).cast(_TIME).alias(END)]
        return rows.select(*self.key, *bounds, *final_expressions(self.aggregates))

    def watermark_delay_us(self) -> int:
        """A window that is emitted ended at most the lateness before the watermark."""
        return self.span.lateness_us

    def signature(self) -> str:
        """Key, span and mode are fixed for the life of a job."""
        return f"Window({', '.join(self.inputs)}; {', '.join(self.key)}; {self.span}; {self.emit})"


@dataclass(frozen=True)
class LateRows(StatelessOperator):
    """The rows of a window's input that come too late for every window: the window's side output."""

    span: WindowSpan
    time: str

    @property
    def determinism(self) -> Determinism:
        """Which rows are late depends on the watermarks, which are logged."""
        return Determinism.DETERMINISTIC

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """The input's shape."""
        return inputs[0]

    def apply(self, frame: pl.DataFrame, context: EpochContext) -> pl.DataFrame:
        """Only the late rows."""
        if context.watermark_us is None:
            return frame.filter(pl.col(self.time).is_null())
        return frame.filter(is_late(self.span, time_us(self.time), context.watermark_us))
