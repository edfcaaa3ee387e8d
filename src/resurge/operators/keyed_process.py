"""User-defined stateful operators: functions per key with state and timers."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from resurge.errors import JobError, ResurgeError, TopologyError
from resurge.model.operator import StreamShape
from resurge.operators.base import Batch, EpochContext, Outcome
from resurge.operators.combining import time_us
from resurge.operators.hashing import Hashes, hash_rows
from resurge.operators.keyed import KEY_NUMBER, earlier
from resurge.operators.keyed_state import KeyedState, StateField, Timers, as_datetime
from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import KeyedTable, State
from resurge.operators.user_process import UserProcess, fitting

Emitted = Iterable[Mapping[str, Any]] | pl.DataFrame | None
OnRows = Callable[..., Emitted]
OnTimer = Callable[..., Emitted]

MOST_OVERDUE = 10_000
"""How many timers of a key for times already reached may fire before event time goes on."""

_DUE = "__due"
_AT = "__at"
_NUMBER = "__number"


@dataclass(frozen=True)
class KeyedProcess(UserProcess):
    """Calls a user's functions per key: with rows, and when a timer is due.

    `on_rows(key, rows, state, timers)` is given a frame, `on_row(key, row, state, timers)` one row as a dict, and
    `on_timer(key, time, state, timers)` a datetime without time zone; `key` is a tuple of the key columns' values. They return
    rows as dicts (columns left out are null), a frame, or None.

    Without `on_timer`, a key is given its rows of an epoch at once, in the order in which they came. With it, rows and timers
    come in the order of event time, whatever the cuts of epochs and the order of arrival: a row waits until the watermark has
    reached its time, a timer comes before rows of the same time or later, and a frame has one row, because the call may set a
    timer that is due before the next row. A timer that is set for a time already reached fires at once.

    Nothing counts as late: the function is given every row, and can compare with `timers.watermark`.
    """

    KIND = "keyed process"

    handler: Any
    output: pl.Schema
    fields: tuple[tuple[str, StateField], ...]
    time: str | None = None

    @cached_property
    def functions(self) -> "Functions":
        """What is called."""
        return _functions(self.handler)

    @property
    def on_timer(self) -> OnTimer | None:
        """What is called when a key's timer is due, if the handler has timers."""
        return self.functions.on_timer

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """The declared output."""
        (given,) = inputs
        if not self.fields or any(not isinstance(kind, StateField) for _, kind in self.fields):
            raise TopologyError(
                f"{self.described} declares state {dict(self.fields)!r}; expected at least one field, each made with "
                "value_of(type), list_of(type) or map_of(key type, type)"
            )
        if self.on_timer is not None:
            self.check_time(given, self.time, ", which has timers,")
        return self.declared_shape(given, self.output, dict(self.fields))

    def tables(self, inputs: Sequence[StreamShape]) -> Mapping[str, TableSpec]:
        """One row per key with one column per field, the timers, and the rows that the watermark has not reached."""
        schema = inputs[0].schema
        specs = {"state": self.table(schema, {name: kind.column_type for name, kind in self.fields})}
        if self.on_timer is not None:
            specs["timers"] = self.table(schema, before={_DUE: pl.Int64()}, bucket=_DUE)
            row = {_AT: pl.Int64(), _NUMBER: pl.Int64(), **schema}
            specs["waiting"] = TableSpec(pl.Schema(row), (_AT, *self.key, _NUMBER), _AT, self.key)
        return specs

    def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
        """Run the user's functions for the keys that have rows or due timers, and keep what they changed."""
        return (
            self._at_once(state, inputs[0].frame, context) if self.on_timer is None else self._by_time(state, inputs[0], context)
        )

    def _at_once(self, state: State, rows: pl.DataFrame, context: EpochContext) -> Outcome:
        """Give each key its rows of the epoch."""
        touched = self.touched(rows)
        epoch = _KeyedEpoch(self, touched, state["state"].lookup(touched), context)
        numbered = self.with_key_number(rows, touched)
        if self.functions.is_one_by_one:
            for index, row in zip(numbered.get_column(KEY_NUMBER), rows.iter_rows(named=True), strict=True):
                epoch.call_on_rows(index, row)
        elif rows.height:
            for index, given in enumerate(numbered.partition_by(KEY_NUMBER, maintain_order=True, include_key=False)):
                epoch.call_on_rows(index, given)
        return Outcome(epoch.emitted(), epoch.changes(), routing=epoch.routing())

    def _by_time(self, state: State, batch: Batch, context: EpochContext) -> Outcome:
        """Give keys their rows and timers in the order of event time, up to the watermark; later rows wait."""
        rows, waiting = self._reached(state["waiting"], batch, context)
        due = state["timers"].between(None, context.closing_us + 1) if context.closing_us is not None else rows.clear()
        touched = self.touched(rows, due.select(self.key).sort(self.key))
        epoch = _KeyedEpoch(self, touched, state["state"].lookup(touched), context)
        if due.height:
            for due_us, index in self.with_key_number(due, touched).select(_DUE, KEY_NUMBER).iter_rows():
                epoch.await_timer(index, due_us)
        # One by one: a row may set a timer that is due before the next. A row without time is given first.
        ordered = self.with_key_number(rows, touched).sort(_AT, nulls_last=False, maintain_order=True)
        given = ordered.select(batch.schema.names())
        singly: Iterator[Any] = given.iter_rows(named=True) if self.functions.is_one_by_one else given.iter_slices(1)
        for (at_us, index), row in zip(ordered.select(_AT, KEY_NUMBER).iter_rows(), singly, strict=True):
            epoch.call_on_timers(at_us)
            epoch.call_on_rows(index, row, at_us)
        epoch.call_on_timers(context.closing_us)
        return Outcome(epoch.emitted(), {**epoch.changes(), "waiting": waiting}, routing=epoch.routing())

    def _reached(self, table: KeyedTable, batch: Batch, context: EpochContext) -> tuple[pl.DataFrame, TableDelta]:
        """The rows whose time the watermark has reached, waiting ones first, and the change of those that wait."""
        at = time_us(self.time or "").alias(_AT)
        number = pl.int_range(pl.len(), dtype=pl.Int64).over(self.key) + (context.epoch << 32)
        new = batch.frame.select(at, number.alias(_NUMBER), pl.all())
        if context.closing_us is None:
            return new.filter(pl.col(_AT).is_null()), TableDelta(new.filter(pl.col(_AT).is_not_null()))
        is_later = (pl.col(_AT) > context.closing_us).fill_null(False)
        before = table.between(None, context.closing_us + 1).sort(_AT, _NUMBER, *self.key)
        low = context.closing_us + 1
        return pl.concat([before.select(new.columns), new.filter(~is_later)]), TableDelta(new.filter(is_later), low=low)


class _KeyedEpoch:
    """The touched keys of one epoch while the user's functions run."""

    def __init__(self, operator: KeyedProcess, touched: pl.DataFrame, stored: pl.DataFrame, context: EpochContext) -> None:
        self.operator = operator
        self.touched = touched
        self.keys = touched.rows()
        self.states = [KeyedState(dict(operator.fields), row) for row in stored.iter_rows(named=True)]
        self.context = context
        self.timers = [Timers(self._changer(index), lambda: self.now_us) for index in range(touched.height)]
        self.waiting: list[tuple[int, int]] = []
        self.awaited: set[tuple[int, int]] = set()
        self.timer_changes: dict[tuple[int, int], bool] = {}
        self.now_us = context.watermark_us
        self.overdue: dict[int, int] = {}
        self.owners: list[int] = []
        self.output: list[pl.DataFrame] = []
        self.rows: list[Mapping[str, Any]] = []

    def call_on_rows(self, index: int, rows: pl.DataFrame | dict[str, Any], now_us: int | None = None) -> None:
        """Give a key rows, or one row; timers that it sets for a time already reached fire at once."""
        self._reach(now_us)
        functions = self.operator.functions
        self._take(self._call("on_row" if functions.is_one_by_one else "on_rows", functions.on_rows, index, rows), index)
        self.call_on_timers(self.now_us)

    def call_on_timers(self, until_us: int | None) -> None:
        """Fire what is due by a time, in the order of time and then of keys; a timer may set others that are due too."""
        while until_us is not None and self.waiting and self.waiting[0][0] <= until_us and self.operator.on_timer is not None:
            entry = heapq.heappop(self.waiting)
            if entry in self.awaited:
                self.awaited.remove(entry)
                due_us, index = entry
                self._check_overdue(due_us, index)
                self._reach(due_us)
                self._take(self._call("on_timer", self.operator.on_timer, index, as_datetime(due_us)), index)

    def _reach(self, now_us: int | None) -> None:
        if now_us is not None and (self.now_us is None or now_us > self.now_us):
            self.now_us = now_us
            self.overdue.clear()

    def _check_overdue(self, due_us: int, index: int) -> None:
        """Refuse a key that sets timers for times already reached again and again."""
        if self.now_us is not None and due_us <= self.now_us:
            self.overdue[index] = self.overdue.get(index, 0) + 1
            if self.overdue[index] > MOST_OVERDUE:
                raise JobError(
                    f"{self.operator.described} set {MOST_OVERDUE} timers of key {self.keys[index]} for "
                    f"{as_datetime(due_us)} or before, when it was {as_datetime(self.now_us)}; "
                    "expected later times, or it would fire for ever"
                )

    def await_timer(self, index: int, time_us: int) -> None:
        """Let a timer fire in this epoch, unless a key's rows have already taken it back."""
        if (time_us, index) not in self.awaited and self.timer_changes.get((time_us, index)) is not False:
            self.awaited.add((time_us, index))
            heapq.heappush(self.waiting, (time_us, index))

    def _changer(self, index: int) -> Callable[[int, bool], None]:
        def change(time_us: int, is_set: bool) -> None:
            described = self.operator.described
            if self.operator.on_timer is None:
                raise JobError(f"{described} set or deleted a timer, but has no on_timer; expected one to call: add it")
            self.timer_changes[time_us, index] = is_set
            if not is_set:
                self.awaited.discard((time_us, index))
            elif self.context.closing_us is not None and time_us <= self.context.closing_us:
                self.await_timer(index, time_us)

        return change

    def _call(self, what: str, function: Callable[..., Emitted], index: int, given: object) -> Emitted:
        try:
            made = function(self.keys[index], given, self.states[index], self.timers[index])
            # A generator runs only when it is read, and must run before the next key's turn.
            return made if made is None or isinstance(made, pl.DataFrame) else list(made)
        except ResurgeError:
            raise
        except Exception as error:
            raise JobError(
                f"{what} of {self.operator.described} failed for key {self.keys[index]}: {type(error).__name__}: {error}"
            ) from error

    def _take(self, made: Emitted, index: int) -> None:
        if made is None:
            return
        if isinstance(made, pl.DataFrame):
            self._flush()
            self.owners += [index] * made.height
            self.output.append(fitting(made, self.operator.output, self.operator.described))
            return
        for row in made:
            if not isinstance(row, Mapping) or not row.keys() <= self.operator.output.keys():
                raise JobError(
                    f"{self.operator.described} emitted {row!r} for key {self.keys[index]}; "
                    f"expected a dict with columns among {', '.join(self.operator.output)}"
                )
            self.rows.append(row)
            self.owners.append(index)

    def _flush(self) -> None:
        if self.rows:
            described = f"the output of {self.operator.described}"
            columns = [
                _column(name, [row.get(name) for row in self.rows], kind, described)
                for name, kind in self.operator.output.items()
            ]
            self.output.append(pl.DataFrame(columns))
            self.rows = []

    def emitted(self) -> pl.DataFrame:
        """Everything that was emitted, in order."""
        self._flush()
        return pl.concat(self.output) if self.output else pl.DataFrame(schema=self.operator.output)

    def routing(self) -> Hashes:
        """For each row that was emitted, the hash of the key that it was made for."""
        return hash_rows(self.touched, self.operator.key)[self.owners]

    def changes(self) -> dict[str, TableDelta]:
        """The state of changed keys, and the timers that were set or deleted and have not fired."""
        contents = {index: state.stored() for index, state in enumerate(self.states) if state.is_changed}
        kept = {index: content for index, content in contents.items() if content is not None}
        described = f"the state of {self.operator.described}"
        columns = [
            _column(name, [content[name] for content in kept.values()], kind.column_type, described)
            for name, kind in self.operator.fields
        ]
        upserts = self.touched[list(kept)].hstack(columns)
        changes = {"state": TableDelta(upserts, self.touched[[index for index in contents if index not in kept]])}
        if self.operator.on_timer is not None:
            low = earlier(self.context.closing_us, -1)
            later = {entry: is_set for entry, is_set in self.timer_changes.items() if low is None or entry[0] >= low}
            changes["timers"] = TableDelta(self._timers(later, True), self._timers(later, False), low)
        return changes

    def _timers(self, entries: Mapping[tuple[int, int], bool], is_set: bool) -> pl.DataFrame:
        chosen = [entry for entry, was_set in entries.items() if was_set is is_set]
        times = pl.DataFrame({_DUE: pl.Series([time_us for time_us, _ in chosen], dtype=pl.Int64)})
        return times.hstack(self.touched[[index for _, index in chosen]])


@dataclass(frozen=True)
class Functions:
    """The functions of a user's handler; `is_one_by_one` if rows are given as dicts, one at a time."""

    on_rows: OnRows
    on_timer: OnTimer | None
    is_one_by_one: bool


def _functions(handler: object) -> Functions:
    """What a user gives: a function, or an object or class with `on_row` or `on_rows`, and perhaps `on_timer`."""
    given = handler() if isinstance(handler, type) else handler
    on_row, on_timer = getattr(given, "on_row", None), getattr(given, "on_timer", None)
    on_rows = on_row if on_row is not None else getattr(given, "on_rows", given)
    is_both = on_row is not None and hasattr(given, "on_rows")
    if is_both or not callable(on_rows) or (on_timer is not None and not callable(on_timer)):
        raise TopologyError(
            f"a keyed process was given {handler!r}; expected a function (key, rows, state, timers), or an object with either "
            "such a method on_rows or a method on_row(key, row, state, timers), and perhaps on_timer(key, time, state, timers)"
        )
    return Functions(on_rows, on_timer, on_row is not None)


def _column(name: str, values: list[Any], kind: pl.DataType, described: str) -> pl.Series:
    try:
        return pl.Series(name, values, dtype=kind, strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise JobError(
            f"{described}: column {name!r} does not take what was given: {str(error).splitlines()[0]}; expected values of type {kind}"
        ) from error
