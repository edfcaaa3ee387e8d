"""One call of an operator for all key groups that take an epoch together.

An operator that may see one key group only is called once for each. What comes of an operator that is not deterministic is
cut by key group and logged: a replay or a move goes by key group, so some key groups of a call may be logged and others not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from resurge.errors import JobError
from resurge.operators.base import Batch, EpochContext, Outcome, StatefulOperator, StatelessOperator
from resurge.operators.failures import failed
from resurge.operators.hashing import Hashes, hash_rows
from resurge.operators.sorted_runs import TableChange, TableDelta, TableSpec
from resurge.operators.state import State
from resurge.runtime.worker.grouped import Flags, Grouped, from_groups, mask
from resurge.runtime.worker.outcomes import OutcomeLog


class Made(NamedTuple):
    """What a call made: output and late rows by key group, the state afterwards, and what changed of it."""

    output: Grouped
    late: tuple[Grouped, ...]
    late_rows: int
    state: State
    changes: Mapping[str, TableChange]


@dataclass(frozen=True)
class Call:
    """A keyed operator, and what it is called with: the key groups that take part, their input and their state."""

    operator: StatefulOperator
    key_groups: Sequence[int]
    total: int
    inputs: Sequence[Grouped]
    batches: Sequence[Batch]
    state: State
    context: EpochContext

    def run(self, log: OutcomeLog | None = None) -> Made:
        """Call the operator; with a log, only for the key groups that have no outcome there."""
        if log is None and self.operator.takes_all_keys:
            outcome = self._process(self.key_groups)
            return self._made(outcome, self._output(outcome), self._late(outcome))
        outcomes = self._outcomes(self.key_groups) if log is None else log.decided(self.key_groups, self._outcomes)
        return self._together(outcomes)

    def _outcomes(self, groups: Sequence[int]) -> Mapping[int, Outcome]:
        """What comes of each of these key groups: of one call that is cut, or of one call for each."""
        if self.operator.takes_all_keys:
            return self._cut(self._process(groups), groups)
        return {group: self._process([group], f", key group {group}") for group in groups}

    def _process(self, groups: Sequence[int], where: str = "") -> Outcome:
        """One call with the rows and the state of some key groups."""
        state, batches = self.state, self.batches
        if len(groups) < len(self.key_groups):
            wanted = mask(groups, self.total)
            given = zip(self.batches, self.inputs, strict=True)
            batches = [Batch(batch.schema, (rows.within(wanted).frame,)) for batch, rows in given]
            state = {name: table.within(groups, self.total) for name, table in self.state.items()}
        try:
            return self.operator.process(state, batches, self.context)
        except Exception as error:
            raise failed(self.operator.name, f"in epoch {self.context.epoch}{where}", error) from error

    def _grouped(self, rows: pl.DataFrame, key: tuple[str, ...], routing: Hashes | None = None) -> Grouped:
        return Grouped.by_hash(rows, hash_rows(rows, key) if routing is None else routing, self.total)

    def _output(self, outcome: Outcome) -> Grouped:
        return self._grouped(outcome.output, (self.operator.keys() or ((),))[0], outcome.routing)

    def _late(self, outcome: Outcome) -> tuple[Grouped, ...]:
        return tuple(self._grouped(rows, key) for rows, key in zip(outcome.late, self.operator.keys() or (), strict=False))

    def _made(self, outcome: Outcome, output: Grouped, late: tuple[Grouped, ...]) -> Made:
        changes = {name: self.state[name].change(delta) for name, delta in outcome.changes.items()}
        state = {name: table.changed(changes[name]) if name in changes else table for name, table in self.state.items()}
        return Made(output, late, outcome.late_rows, state, changes)

    def _cut(self, outcome: Outcome, groups: Sequence[int]) -> Mapping[int, Outcome]:
        """What a call made, by key group."""
        output, late = self._output(outcome), self._late(outcome)
        changes = {name: self._cut_delta(delta, self.state[name].spec) for name, delta in outcome.changes.items()}
        # Late rows that are counted but not kept are of no key group; the first has them, so that they count once.
        uncounted = outcome.late_rows - sum(side.frame.height for side in late)
        return {
            group: Outcome(
                output.of_group(group),
                {name: cut(group) for name, cut in changes.items()},
                sum(int(side.counts[group]) for side in late) + (uncounted if group == groups[0] else 0),
                tuple(side.of_group(group) for side in late),
            )
            for group in groups
        }

    def _cut_delta(self, delta: TableDelta, spec: TableSpec) -> Callable[[int], TableDelta]:
        """How to find one key group's part of what changed in a table."""
        key = spec.key if spec.routing is None else spec.routing
        upserts = None if delta.upserts is None else self._grouped(delta.upserts, key, delta.hashes)
        deletes = None if delta.deletes is None else self._grouped(delta.deletes, key)
        return lambda group: TableDelta(
            None if upserts is None else upserts.of_group(group), None if deletes is None else deletes.of_group(group), delta.low
        )

    def _together(self, outcomes: Mapping[int, Outcome]) -> Made:
        """What was made of each key group, as one."""
        output = from_groups({group: outcome.output for group, outcome in outcomes.items()}, self.total)
        sides = range(max((len(outcome.late) for outcome in outcomes.values()), default=0))
        late = tuple(from_groups({group: made.late[side] for group, made in outcomes.items()}, self.total) for side in sides)
        tables = {name for outcome in outcomes.values() for name in outcome.changes}
        changes = {name: _merged([made.changes[name] for made in outcomes.values() if name in made.changes]) for name in tables}
        rows = sum(outcome.late_rows for outcome in outcomes.values())
        return self._made(Outcome(output.frame, changes, rows), output, late)


@dataclass(frozen=True)
class StatelessCall:
    """An operator without state, and the columns that it must make."""

    operator: StatelessOperator
    schema: pl.Schema
    context: EpochContext

    def of_split(self, rows: pl.DataFrame, split: int, log: OutcomeLog | None = None) -> pl.DataFrame:
        """What the operator makes of the rows of one split."""
        if log is None:
            return self._apply(rows)
        return log.decided([split], lambda _: {split: Outcome(self._apply(rows))})[split].output

    def by_group(self, rows: Grouped, taken: Flags, log: OutcomeLog | None = None) -> Grouped:
        """What the operator makes of each key group's rows; in one call, if it tells of which row each of its rows was made."""
        if log is not None:
            outcomes = log.decided(np.flatnonzero(taken).tolist(), lambda missing: self._outcomes(rows, missing))
            return from_groups({group: outcome.output for group, outcome in outcomes.items()}, rows.ends.size)
        made = self._at_once(rows)
        if made is not None:
            return made
        return from_groups(self._one_by_one(rows, np.flatnonzero(taken).tolist()), rows.ends.size)

    def _outcomes(self, rows: Grouped, groups: Sequence[int]) -> Mapping[int, Outcome]:
        made = self._at_once(rows.within(mask(groups, rows.ends.size)))
        frames = self._one_by_one(rows, groups) if made is None else {group: made.of_group(group) for group in groups}
        return {group: Outcome(frame) for group, frame in frames.items()}

    def _one_by_one(self, rows: Grouped, groups: Sequence[int]) -> dict[int, pl.DataFrame]:
        return {group: self._apply(rows.of_group(group)) for group in groups}

    def _at_once(self, rows: Grouped) -> Grouped | None:
        try:
            traced = self.operator.apply_row_by_row(rows.frame, self.context)
        except Exception as error:
            raise self._failed(error) from error
        return None if traced is None else Grouped(self._checked(traced.rows), np.searchsorted(traced.places, rows.ends))

    def _apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        try:
            made = self.operator.apply(frame, self.context)
        except Exception as error:
            raise self._failed(error) from error
        return self._checked(made)

    def _failed(self, error: Exception) -> Exception:
        return failed(self.operator.name, f"in epoch {self.context.epoch}", error)

    def _checked(self, made: pl.DataFrame) -> pl.DataFrame:
        if made.schema != self.schema:
            raise JobError(
                f"operator {self.operator.name!r} made columns {dict(made.schema)}; expected {dict(self.schema)}, as on an empty "
                "table: let it return the same columns for every input"
            )
        return made


def _merged(deltas: Sequence[TableDelta]) -> TableDelta:
    """The changes of several key groups as one."""
    upserts = [delta.upserts for delta in deltas if delta.upserts is not None]
    deletes = [delta.deletes for delta in deltas if delta.deletes is not None]
    lows = [delta.low for delta in deltas if delta.low is not None]
    return TableDelta(pl.concat(upserts) if upserts else None, pl.concat(deletes) if deletes else None, max(lows, default=None))
