"""Stream-stream join: rows of two streams with the same key, near in event time or in the same window.

Each side's rows stand in state under (slice of event time, key, number within these), with a count per (slice, key). So
all rows that may match are found by key, without reading the rest, and closed slices go at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from resurge.errors import TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.base import Batch, EpochContext, Outcome, left_out, numbered
from resurge.operators.combining import time_us
from resurge.operators.keyed import TIME, KeyedOperator, distinct_columns, earlier, not_before
from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import KeyedTable, State

HOW = ("inner", "left")
JOIN_TIME = "joined_at"
_AT = "__at"
_SLICE = "__slice"
_NUMBER = "__number"
_COUNT = "__count"
_DUE = "__due"
_LEFT, _RIGHT, _RIGHT_AT = "__left", "__right", "__right_at"


@dataclass(frozen=True)
class JoinSpan:
    """Which times match: at most `within_us` apart, or in the same window of `window_us`, or (neither given) any."""

    within_us: int | None = None
    window_us: int | None = None
    lateness_us: int = 0

    @property
    def is_bounded(self) -> bool:
        """Whether rows can become too old to match."""
        return self.within_us is not None or self.window_us is not None

    @property
    def slice_us(self) -> int:
        """The length of a slice of time: rows that match are in the same or in neighbouring slices."""
        return self.window_us or max(self.within_us or 0, 1)

    @property
    def reach(self) -> tuple[int, ...]:
        """How far away, in slices, a matching row may be."""
        return (-1, 0, 1) if self.within_us else (0,)

    def slice_of(self, time: pl.Expr) -> pl.Expr:
        """The slice that a time falls into; there is only one where any times match."""
        return time // self.slice_us if self.is_bounded else pl.lit(0, pl.Int64)

    def last_match(self, time: pl.Expr) -> pl.Expr:
        """The latest time that matches a time."""
        if self.window_us is not None:
            return (time // self.window_us + 1) * self.window_us - 1
        return time + (self.within_us or 0)

    def is_late(self, time: pl.Expr, horizon_us: int) -> pl.Expr:
        """Whether a row of this time comes too late, when rows before the horizon are no longer waited for."""
        return self.last_match(time) < horizon_us if self.window_us is not None else time < horizon_us

    def lowest_slice(self, horizon_us: int) -> int:
        """The first slice with rows that a row at or after the horizon may match."""
        return (horizon_us - (self.within_us or 0)) // self.slice_us


@dataclass(frozen=True)
class IntervalJoin(KeyedOperator):
    """Joins two streams; emits each pair once, in the epoch of its later row.

    The output has the key columns, the left stream's other columns, the right stream's other columns (with `_right` after
    a name that the left stream has too), and, where both streams have event time, `time_column`: the later of the two
    times, or the left one's where nothing matched. That column is the output's event time; both streams' own stay as they
    were. A key with a null in it matches nothing. `how="left"` also emits each left row that nothing can match any more.
    A row is late if it lies before the watermark minus the lateness (for windows: if its window is closed).
    """

    KIND = "join"

    times: tuple[str | None, str | None]
    within_us: int | None = None
    window_us: int | None = None
    lateness_us: int = 0
    how: str = "inner"
    time_column: str = JOIN_TIME

    @property
    def span(self) -> JoinSpan:
        """Which times match."""
        return JoinSpan(self.within_us, self.window_us, self.lateness_us)

    @property
    def determinism(self) -> Determinism:
        """Without a bound the join is repeatable; with one, what is late depends on the watermark, and it converges."""
        return Determinism.CONVERGENT if self.span.is_bounded else Determinism.REPEATABLE

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """Key, left columns, right columns, time."""
        self._check_options()
        self._check_inputs(inputs)
        left, right = inputs
        # The left stream's columns, the key first.
        lefts = {**{name: left.schema[name] for name in self.key}, **left.schema}
        rights = {renamed: right.schema[name] for name, renamed in self._right_names(left.schema, right.schema).items()}
        time: dict[str, pl.DataType] = {self.time_column: TIME} if self._has_time else {}
        advice = f"rename a column in a map before, or pass time_column=... if it is {self.time_column!r}"
        columns = distinct_columns(self.described, lefts, rights, time, advice=advice)
        return StreamShape(columns, self.time_column if self._has_time else None)

    @property
    def _has_time(self) -> bool:
        return None not in self.times

    def _right_names(self, left: pl.Schema, right: pl.Schema) -> dict[str, str]:
        """What the right stream's columns other than the key are called in state and output."""
        return {name: f"{name}_right" if name in left else name for name in right if name not in self.key}

    def _check_options(self) -> None:
        span, described = self.span, self.described
        if len(self.inputs) != 2 or not self.key:
            raise TopologyError(
                f"{described} has {len(self.inputs)} inputs and {len(self.key)} key columns; "
                "expected two inputs and at least one key column"
            )
        if self.how not in HOW:
            raise TopologyError(f"{described}: how is {self.how!r}; expected one of {', '.join(HOW)}")
        if span.within_us is not None and span.window_us is not None:
            raise TopologyError(
                f"{described} has both within and window; expected one of them: rows match by distance or by window"
            )
        if (span.within_us or 0) < 0 or (span.window_us is not None and span.window_us <= 0) or span.lateness_us < 0:
            raise TopologyError(
                f"{described} has {span}; expected durations that are not negative and a window of more than zero"
            )
        if self.how == "left" and not span.is_bounded:
            raise TopologyError(
                f"{described} is a left join without within or window, so a left row could match for ever and would never come "
                "out unmatched; expected one of them, or how='inner'"
            )

    def _check_inputs(self, inputs: Sequence[StreamShape]) -> None:
        described = self.described
        for side, given, time in zip(self.inputs, inputs, self.times, strict=True):
            if self.span.is_bounded:
                given.time_column(f"{described} (input {side!r})")
            if time is not None and time != given.event_time:
                raise TopologyError(
                    f"{described} takes time from {side}.{time}, but that input's event time is {given.event_time!r}"
                )
            if self.span.is_bounded and time is None:
                raise TopologyError(f"{described} matches by time, but names no time column for input {side!r}; expected one")
        for name in self.key:
            kinds = [given.key_column(name, described) for given in inputs]
            if kinds[0] != kinds[1]:
                raise TopologyError(
                    f"{described}: key column {name!r} is {kinds[0]} in {self.inputs[0]!r} and {kinds[1]} in {self.inputs[1]!r}; "
                    "expected the same type: cast one in a map before"
                )

    def tables(self, inputs: Sequence[StreamShape]) -> Mapping[str, TableSpec]:
        """Per side the rows and their counts; for a left join also which left rows nothing has matched yet."""
        left, right = (given.schema for given in inputs)
        place, number = {_SLICE: pl.Int64()}, {_NUMBER: pl.Int64()}
        renamed = {new: right[name] for name, new in self._right_names(left, right).items()}
        counts = self.table(left, {_COUNT: pl.Int64()}, before=place, bucket=_SLICE)
        specs = {"left_counts": counts, "right_counts": counts}
        for side, columns in (("left", dict(left)), ("right", renamed)):
            specs[f"{side}_rows"] = self.table(left, {**columns, _AT: pl.Int64()}, before=place, after=number, bucket=_SLICE)
        if self.how == "left":
            specs["unmatched"] = self.table(left, before={_DUE: pl.Int64(), **place}, after=number, bucket=_DUE)
        return specs

    def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
        """Match the epoch's rows with those in state and with one another, and close what the watermark has passed."""
        judged, closing = self._horizon(context.watermark_us), self._horizon(context.closing_us)
        left, right = (self._timely(numbered(batch.frame), time, judged) for batch, time in zip(inputs, self.times, strict=True))
        late = left_out(inputs[0].frame, left), left_out(inputs[1].frame, right)
        left = self._numbered(left if self.how == "left" else left.drop_nulls(self.key), state["left_counts"])
        right = self._numbered(right.drop_nulls(self.key), state["right_counts"])
        right = right.rename(self._right_names(inputs[0].schema, inputs[1].schema)).select(*state["right_rows"].spec.schema)
        left = left.select(*state["left_rows"].spec.schema)
        known_left = self._candidates(state, "left", right)
        known_right = self._candidates(state, "right", left)
        # Every pair has a row of this epoch: known left with new right, then new left with known and new right.
        pieces = [self._pairs(known_left, right), self._pairs(left, pl.concat([known_right, right]))]
        changes = {**self._stored("left", left, closing), **self._stored("right", right, closing)}
        if self.how == "left":
            changes["unmatched"] = self._unmatched(state["unmatched"], left, pl.concat(pieces), closing)
            pieces.append(self._given_up(state, left, changes["unmatched"], closing))
        return Outcome(
            pl.concat([self._output(piece, inputs) for piece in pieces]), changes, sum(rows.height for rows in late), late
        )

    def _horizon(self, watermark_us: int | None) -> int | None:
        """The time before which rows are no longer waited for."""
        return earlier(watermark_us, self.span.lateness_us) if self.span.is_bounded else None

    def _timely(self, frame: pl.DataFrame, time: str | None, horizon: int | None) -> pl.DataFrame:
        """The rows that are not late, with their time and slice."""
        timed = frame.with_columns((pl.lit(None, pl.Int64) if time is None else time_us(time)).alias(_AT))
        if self.span.is_bounded:
            # A row without time can match nothing: it counts as late rather than vanish.
            timed = timed.filter(pl.col(_AT).is_not_null())
        if horizon is not None:
            timed = timed.filter(~self.span.is_late(pl.col(_AT), horizon))
        return timed.with_columns(self.span.slice_of(pl.col(_AT)).alias(_SLICE))

    def _numbered(self, rows: pl.DataFrame, counts: KeyedTable) -> pl.DataFrame:
        """Number the rows of each slice and key, going on from those in state."""
        place = [_SLICE, *self.key]
        places = rows.select(place).unique(maintain_order=True)
        known = places.hstack(counts.lookup(places))
        numbered = rows.join(known, on=place, how="left", nulls_equal=True, maintain_order="left")
        number = pl.col(_COUNT).fill_null(0) + pl.int_range(pl.len()).over(place)
        return numbered.with_columns(number.alias(_NUMBER)).drop(_COUNT)

    def _candidates(self, state: State, side: str, others: pl.DataFrame) -> pl.DataFrame:
        """The rows of one side in state that may match these rows of the other."""
        table = state[f"{side}_rows"]
        if not others.height or not table.runs:
            return pl.DataFrame(schema=table.spec.schema)
        near = [others.select(pl.col(_SLICE) + step, *self.key) for step in self.span.reach]
        places = pl.concat(near).drop_nulls().unique(maintain_order=True)
        counted = places.hstack(state[f"{side}_counts"].lookup(places)).drop_nulls(_COUNT)
        numbers = pl.int_ranges(0, pl.col(_COUNT)).alias(_NUMBER)
        wanted = counted.select(_SLICE, *self.key, numbers).explode(_NUMBER)
        return wanted.hstack(table.lookup(wanted)).select(*table.spec.schema)

    def _pairs(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """The left and right rows that match, side by side, in the left rows' order and then the right rows'."""
        beside = right.rename({_AT: _RIGHT_AT}).drop(_SLICE, _NUMBER, *self.key)
        if not left.height or not right.height:
            return left.clear().hstack(beside.clear())
        ends = [left.select(pl.row_index(_LEFT), pl.col(_SLICE) + step, *self.key, _AT) for step in self.span.reach]
        others = right.select(pl.row_index(_RIGHT), _SLICE, *self.key, pl.col(_AT).alias(_RIGHT_AT))
        found = pl.concat(ends).join(others, on=[_SLICE, *self.key])
        if self.span.within_us is not None:
            found = found.filter((pl.col(_AT) - pl.col(_RIGHT_AT)).abs() <= self.span.within_us)
        found = found.sort(_LEFT, _RIGHT)
        return left[found.get_column(_LEFT)].hstack(beside[found.get_column(_RIGHT)])

    def _stored(self, side: str, rows: pl.DataFrame, closing: int | None) -> dict[str, TableDelta]:
        """What one side's state takes of the epoch's rows, and the slices it lets go."""
        low = None if closing is None else self.span.lowest_slice(closing)
        kept = not_before(rows, _SLICE, low)
        counts = kept.group_by(_SLICE, *self.key, maintain_order=True).agg((pl.col(_NUMBER).max() + 1).alias(_COUNT))
        return {f"{side}_rows": TableDelta(kept, low=low), f"{side}_counts": TableDelta(counts, low=low)}

    def _unmatched(self, table: KeyedTable, left: pl.DataFrame, pairs: pl.DataFrame, closing: int | None) -> TableDelta:
        """Left rows join the unmatched until something matches them."""
        row = [_SLICE, *self.key, _NUMBER]
        due = self.span.last_match(pl.col(_AT)).alias(_DUE)
        alone = left.join(pairs, on=row, how="anti", nulls_equal=True, maintain_order="left").select(due, *row)
        matched = pairs.select(due, *row).unique(maintain_order=True)
        return TableDelta(alone, matched.filter(pl.Series(table.contains(matched), dtype=pl.Boolean)), closing)

    def _given_up(self, state: State, left: pl.DataFrame, unmatched: TableDelta, closing: int | None) -> pl.DataFrame:
        """The left rows that nothing has matched and nothing can match any more."""
        if closing is None or unmatched.upserts is None or unmatched.deletes is None:
            return left.clear()
        row = [_SLICE, *self.key, _NUMBER]
        known = state["unmatched"].between(None, closing).join(unmatched.deletes, on=row, how="anti", nulls_equal=True)
        found = known.hstack(state["left_rows"].lookup(known))
        fresh = unmatched.upserts.filter(pl.col(_DUE) < closing).join(left, on=row, how="left", nulls_equal=True)
        return pl.concat([found, fresh.select(found.columns)]).sort(_DUE, *self.key, _NUMBER)

    def _output(self, pairs: pl.DataFrame, inputs: Sequence[Batch]) -> pl.DataFrame:
        """The output columns of pairs, or of left rows alone."""
        left, right = (batch.schema for batch in inputs)
        others = [name for name in left if name not in self.key]
        columns: list[str | pl.Expr] = [*self.key, *others]
        is_alone = _RIGHT_AT not in pairs.columns
        for name, renamed in self._right_names(left, right).items():
            columns.append(pl.lit(None, right[name]).alias(renamed) if is_alone else renamed)
        if self._has_time:
            at = pl.col(_AT) if is_alone else pl.max_horizontal(_AT, _RIGHT_AT)
            columns.append(at.cast(TIME).alias(self.time_column))
        return pairs.select(columns)

    def watermark_delay_us(self) -> int:
        """A pair is as new as its later row, which may lie anywhere in an open window; a left row waits for its matches."""
        waited = (self.span.within_us or 0) if self.how == "left" else 0
        return self.span.lateness_us + (self.span.window_us or waited)

    def fixed(self) -> tuple[str, ...]:
        """Span and kind."""
        return (str(self.span), self.how)
