"""Session windows in event time: a key's rows belong together while each comes less than a gap after the one before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from resurge.errors import TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.aggregates import (
    Aggregates,
    all_partial_columns,
    final_expressions,
    final_schema,
    merge_expressions,
    partial_expressions,
    partial_schema,
)
from resurge.operators.base import Batch, EpochContext, Outcome, left_out, numbered
from resurge.operators.combining import time_us
from resurge.operators.keyed import KEY_NUMBER, TIME, KeyedOperator, distinct_columns, earlier
from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import KeyedTable, State
from resurge.operators.windows import BOUNDS, END, START, check_emit_mode

RETRACTED = "retracted"
_SESSIONS = "__sessions"
_DUE = "__due"
_FIRST, _LAST = "__first", "__last"
_SESSION = "__session"
_IS_NEW = "__is_new"


@dataclass(frozen=True)
class SessionWindow(KeyedOperator):
    """Aggregates per key and session; a session ends a gap after its last row, and a row at that very time begins another.

    In update mode each session that changed in the epoch is emitted with `retracted` false, and each that no longer exists
    under its (key, window_start), because it grew backwards or was merged, is emitted once more, as it was, with
    `retracted` true. In final mode each session is emitted once, when the watermark has passed its end plus the lateness.
    A row is late when the session it would begin is over already and it does not fall into one that is still in state.
    """

    KIND = "session window"

    time: str
    gap_us: int
    aggregates: Aggregates
    lateness_us: int = 0
    emit: str = "update"

    @property
    def determinism(self) -> Determinism:
        """Restarted from empty state, sessions converge once those open at the restart are over."""
        return Determinism.CONVERGENT

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """Key, session bounds, aggregates and, in update mode, whether the row is taken back."""
        (given,) = inputs
        key = self.key_columns(given)
        self._check_options(given)
        results = final_schema(self.aggregates, given, self.described)
        mark: dict[str, pl.DataType] = {RETRACTED: pl.Boolean()} if self.emit == "update" else {}
        return StreamShape(distinct_columns(self.described, key, BOUNDS, results, mark), END)

    def _check_options(self, given: StreamShape) -> None:
        check_emit_mode(self.described, self.emit)
        if self.gap_us <= 0 or self.lateness_us < 0:
            raise TopologyError(
                f"{self.described} has a gap of {self.gap_us} us and a lateness of {self.lateness_us} us; "
                "expected a gap of more than zero and a lateness of zero or more"
            )
        self.check_time(given, self.time)

    def tables(self, inputs: Sequence[StreamShape]) -> Mapping[str, TableSpec]:
        """Each key's sessions as a list, and an index of the times at which sessions end."""
        (given,) = inputs
        parts = partial_schema(self.aggregates, given, self.described)
        session = pl.Struct({_FIRST: pl.Int64(), _LAST: pl.Int64(), **parts})
        return {
            "sessions": self.table(given.schema, {_SESSIONS: pl.List(session)}),
            "due": self.table(given.schema, before={_DUE: pl.Int64()}, bucket=_DUE),
        }

    def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
        """Add the epoch's rows to the sessions of their keys, emit, and close what the watermark has passed."""
        rows = inputs[0].frame
        closed_to = earlier(context.closing_us, self.lateness_us)
        touched = self._touched(rows, state["due"], closed_to)
        before = _sessions_of(state["sessions"], touched)
        timely = self._timely(numbered(rows), touched, before, context.watermark_us)
        after = self._merged(before, self._new_sessions(timely, _part_types(state["sessions"])))
        is_open = pl.lit(True) if closed_to is None else pl.col(_LAST) + self.gap_us > closed_to
        changed = after.filter(pl.col(_IS_NEW) | ~is_open).select(KEY_NUMBER).unique()
        remaining = after.filter(is_open).join(changed, on=KEY_NUMBER, how="semi", maintain_order="left")
        emitted = self._updates(before, after) if self.emit == "update" else after.filter(~is_open)
        changes = {
            "sessions": self._session_changes(touched, changed, remaining),
            "due": self._due_changes(touched, before.join(changed, on=KEY_NUMBER, how="semi"), remaining, closed_to),
        }
        late = left_out(rows, timely)
        return Outcome(self._output(emitted, touched), changes, late.height, (late,))

    def _touched(self, rows: pl.DataFrame, due: KeyedTable, closed_to: int | None) -> pl.DataFrame:
        """The keys of the rows in order of appearance, then those with sessions to close in the key's order."""
        if closed_to is None or not due.runs:
            return self.touched(rows)
        return self.touched(rows, due.between(None, closed_to + 1).sort(self.key))

    def _timely(self, rows: pl.DataFrame, touched: pl.DataFrame, before: pl.DataFrame, watermark_us: int | None) -> pl.DataFrame:
        """The rows that are not late, with their time and the number of their key."""
        timed = self.with_key_number(rows, touched)
        # A row without time belongs to no session: it counts as late rather than vanish.
        timed = timed.with_columns(time_us(self.time).alias(_LAST)).filter(pl.col(_LAST).is_not_null())
        if watermark_us is None:
            return timed
        time = pl.col(_LAST)
        late = time + self.gap_us + self.lateness_us <= watermark_us
        suspects = timed.lazy().with_row_index(_SESSION).filter(late).select(_SESSION, KEY_NUMBER, time.alias("__at")).collect()
        if not suspects.height:
            return timed
        # A row after the last of an open session is not late itself.
        inside = suspects.join(before, on=KEY_NUMBER).filter(pl.col("__at").is_between(_FIRST, _LAST))
        saved = pl.int_range(pl.len()).is_in(inside.get_column(_SESSION).cast(pl.Int64).implode())
        return timed.filter(~late | saved)

    def _new_sessions(self, timely: pl.DataFrame, part_types: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """The sessions that the epoch's rows make by themselves."""
        ordered = timely.sort(KEY_NUMBER, _LAST, maintain_order=True).with_columns(pl.col(_LAST).alias(_FIRST))
        bounds = [pl.col(KEY_NUMBER).first(), pl.col(_FIRST).first(), pl.col(_LAST).last()]
        parts = partial_expressions(self.aggregates, part_types)
        return _numbered(ordered, self.gap_us).group_by(_SESSION, maintain_order=True).agg(*bounds, *parts).drop(_SESSION)

    def _merged(self, before: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
        """Old and new sessions of each key, merged where less than the gap lies between them."""
        pieces = [before.with_columns(pl.lit(False).alias(_IS_NEW)), new.with_columns(pl.lit(True).alias(_IS_NEW))]
        ordered = pl.concat(pieces).sort(KEY_NUMBER, _FIRST, _IS_NEW)
        bounds = [pl.col(KEY_NUMBER).first(), pl.col(_FIRST).first(), pl.col(_LAST).max()]
        parts = merge_expressions(self.aggregates, ordered.schema)
        merged = _numbered(ordered, self.gap_us).group_by(_SESSION, maintain_order=True)
        return merged.agg(*bounds, *parts, pl.col(_IS_NEW).any()).drop(_SESSION)

    def _updates(self, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
        gone = before.join(after, on=[KEY_NUMBER, _FIRST], how="anti").with_columns(pl.lit(True).alias(RETRACTED))
        grown = after.filter(_IS_NEW).drop(_IS_NEW).with_columns(pl.lit(False).alias(RETRACTED))
        return pl.concat([gone, grown]).sort(KEY_NUMBER, _FIRST, pl.col(RETRACTED).not_())

    def _session_changes(self, touched: pl.DataFrame, changed: pl.DataFrame, remaining: pl.DataFrame) -> TableDelta:
        fields = pl.struct(_FIRST, _LAST, *all_partial_columns(self.aggregates)).alias(_SESSIONS)
        lists = remaining.group_by(KEY_NUMBER, maintain_order=True).agg(fields)
        emptied = changed.join(lists, on=KEY_NUMBER, how="anti")
        return TableDelta(_with_key(lists, touched), _with_key(emptied, touched))

    def _due_changes(
        self, touched: pl.DataFrame, old: pl.DataFrame, remaining: pl.DataFrame, closed_to: int | None
    ) -> TableDelta:
        due = (pl.col(_LAST) + self.gap_us).alias(_DUE)
        added, removed = (_with_key(sessions.select(KEY_NUMBER, due), touched) for sessions in (remaining, old))
        return TableDelta(added, removed, None if closed_to is None else closed_to + 1)

    def _output(self, sessions: pl.DataFrame, touched: pl.DataFrame) -> pl.DataFrame:
        bounds = [pl.col(_FIRST).cast(TIME).alias(START), (pl.col(_LAST) + self.gap_us).cast(TIME).alias(END)]
        mark = [RETRACTED] if self.emit == "update" else []
        keyed = _with_key(sessions, touched)
        if self.emit == "final":
            keyed = keyed.sort(_LAST, *self.key)
        return keyed.select(*self.key, *bounds, *final_expressions(self.aggregates), *mark)

    def watermark_delay_us(self) -> int:
        """A session that is emitted ended at most the lateness before the watermark."""
        return self.lateness_us

    def fixed(self) -> tuple[str, ...]:
        """Gap, lateness and mode."""
        return (f"gap {self.gap_us}", f"lateness {self.lateness_us}", self.emit)


def _part_types(sessions: KeyedTable) -> Mapping[str, pl.DataType]:
    """The types of a session's fields."""
    return pl.DataFrame(schema=sessions.spec.schema).select(pl.col(_SESSIONS).explode()).unnest(_SESSIONS).schema


def _sessions_of(table: KeyedTable, touched: pl.DataFrame) -> pl.DataFrame:
    """The sessions in state of these keys, one per row."""
    listed = touched.select(pl.row_index(KEY_NUMBER)).hstack(table.lookup(touched)).drop_nulls(_SESSIONS)
    return listed.explode(_SESSIONS).unnest(_SESSIONS)


def _numbered(pieces: pl.DataFrame, gap_us: int) -> pl.DataFrame:
    """Number the sessions of pieces that are ordered by key and first time."""
    reach = pl.col(_LAST).cum_max().shift(1).over(KEY_NUMBER)
    begins = (pl.col(_FIRST) - reach >= gap_us).fill_null(True)
    return pieces.with_columns(begins.cum_sum().alias(_SESSION))


def _with_key(rows: pl.DataFrame, touched: pl.DataFrame) -> pl.DataFrame:
    """The key columns in place of the key's number."""
    return rows.join(touched.with_row_index(KEY_NUMBER), on=KEY_NUMBER, how="left", maintain_order="left").drop(KEY_NUMBER)
