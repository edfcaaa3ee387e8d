"""Tumbling and sliding windows in event time, computed from panes that all windows over a stream share."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from resurge.errors import TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.adding import added
from resurge.operators.aggregates import (
    Aggregates,
    count,
    final_columns,
    final_schema,
    merge_with,
    partial_schema,
)
from resurge.operators.base import Batch, EpochContext, Outcome, StatelessOperator, Traced, numbered, traced
from resurge.operators.columns import taken
from resurge.operators.combining import PANE, Combiner, time_us
from resurge.operators.hashing import Hashes
from resurge.operators.keyed import TIME, KeyedOperator, distinct_columns
from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import KeyedTable, State
from resurge.operators.window_sums import Panes, windowed

START, END = "window_start", "window_end"
_OLD = "__old"
BOUNDS: dict[str, pl.DataType] = {START: TIME, END: TIME}
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
class Window(KeyedOperator):
    """Aggregates per key and window; emits changed windows in every epoch (update), or each window once (final)."""

    KIND = "window"

    span: WindowSpan
    aggregates: Aggregates
    emit: str = "update"

    @property
    def determinism(self) -> Determinism:
        """Restarted from empty state, a time window converges."""
        return Determinism.CONVERGENT

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """Key, window bounds, aggregates; the event time is the window's end."""
        (given,) = inputs
        key = self.key_columns(given)
        check_emit_mode(self.described, self.emit)
        if self.span.slide_us > self.span.size_us:
            raise TopologyError(
                f"{self.described} slides by more than its size, so rows between two windows would be lost; "
                "expected a slide of at most the size"
            )
        given.time_column(self.described)
        results = final_schema(self.aggregates, given, self.described)
        return StreamShape(distinct_columns(self.described, key, BOUNDS, results), END)

    def combiner(self, shape: StreamShape) -> Combiner:
        """Parts per key and pane; rows are counted too, so that late ones can be."""
        counted = (*self.aggregates, ("", count()))
        return Combiner(self.key, counted, shape.time_column(self.described), self.span.pane_us, (self.name,))

    def tables(self, inputs: Sequence[StreamShape]) -> Mapping[str, TableSpec]:
        """Parts per key and window; a window's start is its bucket, so that closed windows go at once."""
        (given,) = inputs
        parts = partial_schema(self.aggregates, given, self.described)
        return {"windows": self.table(given.schema, parts, after={START: pl.Int64()}, bucket=START)}

    def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
        """Add the epoch's panes to the open windows, emit, and close what the watermark has passed."""
        table = state["windows"]
        open_from = self._open_from(context.watermark_us)
        panes = _panes(inputs[0], self.key)
        late_rows = _untimed(inputs[0]) + (0 if panes is None else self._late_rows(panes, open_from))
        low = self._open_from(context.closing_us)
        if panes is None:
            nothing = pl.DataFrame(schema=table.spec.schema)
            emitted = nothing if self.emit == "update" else self._closed(table, nothing, low)
            return Outcome(self._output(emitted), {"windows": TableDelta(low=low)}, late_rows)
        changed, hashes, routing = self._changed(panes, table, open_from)
        kept = changed
        if low is not None:
            is_open = changed.get_column(START).to_numpy() >= low
            if not is_open.all():
                kept, hashes = taken(changed, np.flatnonzero(is_open)), hashes[is_open]
        changes = {"windows": TableDelta(kept, low=low, hashes=hashes)}
        if self.emit == "update":
            return Outcome(self._output(changed), changes, late_rows, routing=routing)
        return Outcome(self._output(self._closed(table, changed, low)), changes, late_rows)

    def _changed(self, panes: Panes, table: KeyedTable, open_from: int | None) -> tuple[pl.DataFrame, Hashes, Hashes]:
        """The new parts of the keys and open windows that have rows in this epoch, and the hashes of the rows and of their keys."""
        found = windowed(panes, self.span.size_us, self.span.slide_us, open_from, self.aggregates)
        starts = found.windows * self.span.slide_us
        changed = pl.DataFrame([*found.keys, pl.Series(START, starts), *found.parts])
        hashes = table.spec.hashes(changed, found.hashes)
        last = table.highest_bucket
        # Windows that start after the last one in state are new.
        known = np.flatnonzero(starts <= last) if last is not None else starts[:0]
        if not known.size:
            return changed, hashes, found.hashes
        parts = added(table, changed, hashes, known, self.aggregates)
        if parts is not None:
            return pl.DataFrame([*found.keys, changed.get_column(START), *parts]), hashes, found.hashes
        older = table.lookup(taken(changed, known), hashes[known]).rename(lambda name: name + _OLD)
        merging = merge_with(self.aggregates, _OLD, changed.schema)
        merged = taken(changed, known).hstack(older).with_columns(merging).select(changed.columns)
        place = np.arange(changed.height)
        place[known] = changed.height + np.arange(known.size)
        return taken(pl.concat([changed, merged], rechunk=True), place), hashes, found.hashes

    def _open_from(self, watermark_us: int | None) -> int | None:
        return None if watermark_us is None else self.span.closed_before(watermark_us)

    def _late_rows(self, panes: Panes, open_from: int | None) -> int:
        """Rows all of whose windows are closed."""
        if open_from is None:
            return 0
        slide_us = self.span.slide_us
        return int(panes.rows_per_time[panes.times_us // slide_us * slide_us < open_from].sum())

    def _closed(self, table: KeyedTable, changed: pl.DataFrame, low: int | None) -> pl.DataFrame:
        """The windows that this epoch closes."""
        if low is None:
            return changed.clear()
        closing = TableDelta(changed.filter(pl.col(START) < low))
        return table.apply(closing).between(None, low).sort(START, *self.key)

    def _output(self, rows: pl.DataFrame) -> pl.DataFrame:
        start = rows.get_column(START)
        end = pl.Series(END, start.to_numpy() + self.span.size_us)
        keys = [rows.get_column(name) for name in self.key]
        return pl.DataFrame([*keys, start.cast(TIME), end.cast(TIME), *final_columns(self.aggregates, rows)])

    def watermark_delay_us(self) -> int:
        """A window that is emitted ended at most the lateness before the watermark."""
        return self.span.lateness_us

    def fixed(self) -> tuple[str, ...]:
        """Span and mode."""
        return (str(self.span), self.emit)


def check_emit_mode(described: str, emit: str) -> None:
    """Refuse any other than those that windows have."""
    if emit not in EMIT_MODES:
        raise TopologyError(f"{described}: emit is {emit!r}; expected one of {', '.join(EMIT_MODES)}")


def _untimed(batch: Batch) -> int:
    """Rows without a time: they belong to no window, and count as late rather than vanish."""

    def compute() -> int:
        untimed = batch.frame.get_column(PANE).is_null()
        return int(batch.frame.get_column("count()").filter(untimed).sum()) if untimed.any() else 0

    return batch.once("untimed", compute)


def _panes(batch: Batch, key: tuple[str, ...]) -> Panes | None:
    """The batch's panes by key, computed once for all windows that read it; None without any row that has a time."""

    def compute() -> Panes | None:
        parts, keys = batch.frame, batch.coded(key)
        pane_us, codes = parts.get_column(PANE), keys.codes
        if pane_us.null_count():
            timed = pane_us.is_not_null()
            parts, pane_us, codes = parts.filter(timed), pane_us.filter(timed), codes[timed.to_numpy()]
        return Panes(parts, pane_us.to_numpy(), codes, keys) if codes.size else None

    return batch.once(("panes", key), compute)


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

    def apply_row_by_row(self, frame: pl.DataFrame, context: EpochContext) -> Traced:
        """Each row is late or not for itself."""
        return traced(self.apply(numbered(frame), context))
