"""User-defined stateful operators: functions per key with state and timers."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from resurge.errors import JobError, ResurgeError, TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.base import Batch, EpochContext, Outcome, StatefulOperator
from resurge.operators.keyed_state import KeyedState, StateField, Timers, as_datetime
from resurge.operators.state import State, TableDelta, TableSpec

Emitted = Iterable[Mapping[str, Any]] | pl.DataFrame | None
OnRows = Callable[..., Emitted]
OnTimer = Callable[..., Emitted]

_DUE = "__due"
_KEY = "__key"


@dataclass(frozen=True)
class KeyedProcess(StatefulOperator):
    """Calls `on_rows(key, rows, state, timers)` once per key and epoch, then `on_timer(key, time, state, timers)` as due.

    `key` is a tuple of the key columns' values, `rows` a frame of the key's rows in their order, `time` a datetime without
    time zone. Keys come in the order in which they first appear in the epoch. Then all timers fire that the watermark at
    the epoch's end has reached, in the order of their times; so a timer has seen every row that came before its time was
    reached, and none that came after. A timer that is set for a time already reached fires in the same epoch. Both
    functions return rows as dicts (columns left out are null), a frame, or None. Nothing counts as late: the function is
    given every row, and can compare with `timers.watermark`.
    """

    key: tuple[str, ...]
    handler: Any
    output: pl.Schema
    fields: tuple[tuple[str, StateField], ...]
    event_time: str | None = None
    event_time_delay_us: int = 0
    declared: Determinism = Determinism.DETERMINISTIC

    @cached_property
    def _functions(self) -> tuple[OnRows, OnTimer | None]:
        return _functions(self.handler)

    @property
    def on_rows(self) -> OnRows:
        """What is called with a key's rows."""
        return self._functions[0]

    @property
    def on_timer(self) -> OnTimer | None:
        """What is called when a key's timer is due, if the handler has timers."""
        return self._functions[1]

    @property
    def determinism(self) -> Determinism:
        """What the user declares."""
        return self.declared

    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The key columns of its only input."""
        return (self.key,)

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """The declared output."""
        (given,) = inputs
        described = f"keyed process {self.name!r}"
        check_keyed(described, self.key, given)
        if not self.fields or any(not isinstance(kind, StateField) for _, kind in self.fields):
            raise TopologyError(
                f"{described} declares state {dict(self.fields)!r}; expected at least one field, each made with "
                "value_of(type), list_of(type) or map_of(key type, type)"
            )
        check_names(described, self.key, dict(self.fields))
        if self.on_timer is not None:
            given.time_column(f"{described}, which has timers,")
        return checked_output(described, self.output, self.event_time)

    def tables(self, inputs: Sequence[StreamShape]) -> Mapping[str, TableSpec]:
        """One row per key with one column per field, and the timers."""
        key: dict[str, pl.DataType] = {name: inputs[0].schema[name] for name in self.key}
        fields = {name: kind.column_type for name, kind in self.fields}
        specs = {"state": TableSpec(pl.Schema({**key, **fields}), self.key)}
        if self.on_timer is not None:
            specs["timers"] = TableSpec(pl.Schema({_DUE: pl.Int64(), **key}), (_DUE, *self.key), _DUE)
        return specs

    def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
        """Run the user's functions for the keys that have rows or due timers, and keep what they changed."""
        rows = inputs[0].frame
        due = self._due(state, rows, context.closing_us)
        touched = pl.concat([rows.select(self.key), due.select(self.key)]).unique(maintain_order=True)
        epoch = _KeyedEpoch(self, touched, state["state"].lookup(touched), context)
        for index, given in enumerate(self._per_key(rows, touched)):
            epoch.call_on_rows(index, given)
        if self.on_timer is not None:
            numbered = due.join(touched.with_row_index(_KEY), on=list(self.key), nulls_equal=True, maintain_order="left")
            for time_us, index in numbered.select(_DUE, _KEY).iter_rows():
                epoch.await_timer(index, time_us)
            epoch.call_on_timers()
        return Outcome(epoch.emitted(), epoch.changes())

    def _due(self, state: State, rows: pl.DataFrame, closing_us: int | None) -> pl.DataFrame:
        """The timers in state that fire in this epoch, in the order of their times."""
        if self.on_timer is None or closing_us is None:
            return rows.select(pl.lit(0, pl.Int64).alias(_DUE), *self.key).clear()
        return state["timers"].between(None, closing_us + 1).sort(_DUE, *self.key)

    def _per_key(self, rows: pl.DataFrame, touched: pl.DataFrame) -> list[pl.DataFrame]:
        if not rows.height:
            return []
        numbered = rows.join(touched.with_row_index(_KEY), on=list(self.key), how="left", nulls_equal=True, maintain_order="left")
        return numbered.partition_by(_KEY, maintain_order=True, include_key=False)

    @property
    def keeps_key(self) -> bool:
        """A user's function may emit rows of other keys."""
        return False

    def watermark_delay_us(self) -> int:
        """What the user declares."""
        return self.event_time_delay_us

    def signature(self) -> str:
        """The key is fixed for the life of a job; so are the state's fields, which the tables tell."""
        return f"KeyedProcess({', '.join(self.inputs)}; {', '.join(self.key)})"


class _KeyedEpoch:
    """The touched keys of one epoch of one partition while the user's functions run."""

    def __init__(self, operator: KeyedProcess, touched: pl.DataFrame, stored: pl.DataFrame, context: EpochContext) -> None:
        self.operator = operator
        self.touched = touched
        self.keys = touched.rows()
        self.states = [KeyedState(dict(operator.fields), row) for row in stored.iter_rows(named=True)]
        self.context = context
        self.timers = [Timers(self._changer(index), context.watermark_us) for index in range(touched.height)]
        self.waiting: list[tuple[int, int]] = []
        self.awaited: set[tuple[int, int]] = set()
        self.timer_changes: dict[tuple[int, int], bool] = {}
        self.firing_us: int | None = None
        self.output: list[pl.DataFrame] = []
        self.rows: list[Mapping[str, Any]] = []

    def call_on_rows(self, index: int, rows: pl.DataFrame) -> None:
        """Give a key its rows."""
        self._take(self._call("on_rows", self.operator.on_rows, index, rows), index)

    def call_on_timers(self) -> None:
        """Fire what is due, in the order of time and then of keys; a timer may set later ones that are due too."""
        while self.waiting and self.operator.on_timer is not None:
            entry = heapq.heappop(self.waiting)
            if entry in self.awaited:
                self.awaited.remove(entry)
                self.firing_us, index = entry
                self._take(self._call("on_timer", self.operator.on_timer, index, as_datetime(self.firing_us)), index)

    def await_timer(self, index: int, time_us: int) -> None:
        """Let a timer fire in this epoch, unless a key's rows have already taken it back."""
        if (time_us, index) not in self.awaited and self.timer_changes.get((time_us, index)) is not False:
            self.awaited.add((time_us, index))
            heapq.heappush(self.waiting, (time_us, index))

    def _changer(self, index: int) -> Callable[[int, bool], None]:
        def change(time_us: int, is_set: bool) -> None:
            described = f"keyed process {self.operator.name!r}"
            if self.operator.on_timer is None:
                raise JobError(f"{described} set or deleted a timer, but has no on_timer; expected one to call: add it")
            if is_set and self.firing_us is not None and time_us <= self.firing_us:
                raise JobError(
                    f"{described} set a timer for {as_datetime(time_us)} while that of {as_datetime(self.firing_us)} fired; "
                    "expected a later time, or it would fire for ever"
                )
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
                f"{what} of keyed process {self.operator.name!r} failed for key {self.keys[index]}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _take(self, made: Emitted, index: int) -> None:
        if made is None:
            return
        if isinstance(made, pl.DataFrame):
            self._flush()
            self.output.append(fitting(made, self.operator.output, f"keyed process {self.operator.name!r}"))
            return
        for row in made:
            if not isinstance(row, Mapping) or not row.keys() <= self.operator.output.keys():
                raise JobError(
                    f"keyed process {self.operator.name!r} emitted {row!r} for key {self.keys[index]}; "
                    f"expected a dict with columns among {', '.join(self.operator.output)}"
                )
            self.rows.append(row)

    def _flush(self) -> None:
        if self.rows:
            described = f"the output of keyed process {self.operator.name!r}"
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

    def changes(self) -> dict[str, TableDelta]:
        """The state of changed keys, and the timers that were set or deleted and have not fired."""
        contents = {index: state.stored() for index, state in enumerate(self.states) if state.is_changed}
        kept = {index: content for index, content in contents.items() if content is not None}
        described = f"the state of keyed process {self.operator.name!r}"
        columns = [
            _column(name, [content[name] for content in kept.values()], kind.column_type, described)
            for name, kind in self.operator.fields
        ]
        upserts = self.touched[list(kept)].hstack(columns)
        changes = {"state": TableDelta(upserts, self.touched[[index for index in contents if index not in kept]])}
        if self.operator.on_timer is not None:
            low = None if self.context.closing_us is None else self.context.closing_us + 1
            later = {entry: is_set for entry, is_set in self.timer_changes.items() if low is None or entry[0] >= low}
            changes["timers"] = TableDelta(self._timers(later, True), self._timers(later, False), low)
        return changes

    def _timers(self, entries: Mapping[tuple[int, int], bool], is_set: bool) -> pl.DataFrame:
        chosen = [entry for entry, was_set in entries.items() if was_set is is_set]
        times = pl.DataFrame({_DUE: pl.Series([time_us for time_us, _ in chosen], dtype=pl.Int64)})
        return times.hstack(self.touched[[index for _, index in chosen]])


def _functions(handler: object) -> tuple[OnRows, OnTimer | None]:
    """The two functions of what a user gives: a function, or an object or class with `on_rows` and perhaps `on_timer`."""
    given = handler() if isinstance(handler, type) else handler
    on_rows, on_timer = getattr(given, "on_rows", given), getattr(given, "on_timer", None)
    if not callable(on_rows) or (on_timer is not None and not callable(on_timer)):
        raise TopologyError(
            f"a keyed process was given {handler!r}; expected a function (key, rows, state, timers), "
            "or an object with such a method on_rows and perhaps on_timer(key, time, state, timers)"
        )
    return on_rows, on_timer


def check_keyed(described: str, key: tuple[str, ...], given: StreamShape) -> None:
    """Refuse an operator without key, or with one that rows cannot be grouped by."""
    if not key:
        raise TopologyError(f"{described} has no key; expected at least one key column")
    for name in key:
        given.key_column(name, described)


def check_names(described: str, key: tuple[str, ...], fields: Iterable[str]) -> None:
    """Refuse state that has the name of a key column."""
    for name in fields:
        if name in key:
            raise TopologyError(f"{described}: state {name!r} has the name of a key column; expected another: rename it")


def checked_output(described: str, output: pl.Schema, event_time: str | None) -> StreamShape:
    """The shape of a declared output."""
    shape = StreamShape(output, event_time)
    if not output:
        raise TopologyError(f"{described} declares no output columns; expected at least one")
    if event_time is not None and shape.column(event_time, described).base_type() != pl.Datetime:
        raise TopologyError(f"{described}: event time {event_time!r} is {output[event_time]}; expected Datetime")
    return shape


def fitting(frame: pl.DataFrame, schema: pl.Schema, described: str) -> pl.DataFrame:
    """A frame that a user made, if it has the declared columns."""
    if dict(frame.schema) != dict(schema):
        raise JobError(f"{described} gave columns {dict(frame.schema)}; expected {dict(schema)}: select and cast them")
    return frame.select(*schema)


def _column(name: str, values: list[Any], kind: pl.DataType, described: str) -> pl.Series:
    try:
        return pl.Series(name, values, dtype=kind, strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise JobError(
            f"{described}: column {name!r} does not take what was given: {str(error).splitlines()[0]}; expected values of type {kind}"
        ) from error
