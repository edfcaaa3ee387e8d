"""One call of a keyed operator for all key groups that take an epoch together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from resurge.model.operator import Determinism
from resurge.operators.base import Batch, EpochContext, Outcome, StatefulOperator
from resurge.operators.failures import failed
from resurge.operators.hashing import hash_rows, key_groups_of
from resurge.operators.sorted_runs import TableChange, TableDelta
from resurge.operators.state import State
from resurge.runtime.worker.grouped import Grouped, mask, together

Decide = Callable[[int, Callable[[], Outcome]], Outcome]
"""The outcome of a key group: the logged one, or the one that is computed now."""


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

    def run(self, decide: Decide) -> Made:
        """Call the operator once; or once for each key group, where it wants that or where outcomes are logged."""
        if self.operator.takes_all_keys and self.operator.determinism is not Determinism.ARBITRARY:
            outcome = self._process(self.state, self.batches, "")
            return self._made(outcome, self._grouped(outcome), self._late(outcome))
        return self._one_by_one(decide)

    def _process(self, state: State, batches: Sequence[Batch], where: str) -> Outcome:
        try:
            return self.operator.process(state, batches, self.context)
        except Exception as error:
            raise failed(self.operator.name, f"in epoch {self.context.epoch}{where}", error) from error

    def _grouped(self, outcome: Outcome) -> Grouped:
        routing = outcome.routing
        hashes = hash_rows(outcome.output, (self.operator.keys() or ((),))[0]) if routing is None else routing
        return Grouped.of(outcome.output, key_groups_of(hashes, self.total), self.total)

    def _late(self, outcome: Outcome) -> tuple[Grouped, ...]:
        keys = self.operator.keys() or ()
        return tuple(
            Grouped.of(rows, key_groups_of(hash_rows(rows, key), self.total), self.total)
            for rows, key in zip(outcome.late, keys, strict=False)
        )

    def _made(self, outcome: Outcome, output: Grouped, late: tuple[Grouped, ...]) -> Made:
        changes = {name: self.state[name].change(delta) for name, delta in outcome.changes.items()}
        state = {name: table.changed(changes[name]) if name in changes else table for name, table in self.state.items()}
        return Made(output, late, outcome.late_rows, state, changes)

    def _one_by_one(self, decide: Decide) -> Made:
        outcomes = dict(self._outcomes(decide))
        output = _by_group({group: outcome.output for group, outcome in outcomes.items()}, self.total)
        sides = range(max((len(outcome.late) for outcome in outcomes.values()), default=0))
        late = tuple(_by_group({group: made.late[side] for group, made in outcomes.items()}, self.total) for side in sides)
        tables = {name for outcome in outcomes.values() for name in outcome.changes}
        changes = {name: _merged([made.changes[name] for made in outcomes.values() if name in made.changes]) for name in tables}
        rows = sum(outcome.late_rows for outcome in outcomes.values())
        return self._made(Outcome(output.frame, changes, rows), output, late)

    def _outcomes(self, decide: Decide) -> Iterator[tuple[int, Outcome]]:
        for group in self.key_groups:
            alone = mask([group], self.total)
            batches = [
                Batch(batch.schema, (rows.within(alone).frame,)) for batch, rows in zip(self.batches, self.inputs, strict=True)
            ]
            state = {name: table.within([group], self.total) for name, table in self.state.items()}

            def compute(state: State = state, batches: Sequence[Batch] = batches, where: str = f", key group {group}") -> Outcome:
                return self._process(state, batches, where)

            yield group, decide(group, compute)


def _by_group(frames: dict[int, pl.DataFrame], total: int) -> Grouped:
    pieces = []
    for group, frame in frames.items():
        counts = np.zeros(total, dtype=np.int64)
        counts[group] = frame.height
        pieces.append(Grouped(frame, np.cumsum(counts)))
    return together(pieces)


def _merged(deltas: Sequence[TableDelta]) -> TableDelta:
    """The changes of several key groups as one."""
    upserts = [delta.upserts for delta in deltas if delta.upserts is not None]
    deletes = [delta.deletes for delta in deltas if delta.deletes is not None]
    lows = [delta.low for delta in deltas if delta.low is not None]
    return TableDelta(pl.concat(upserts) if upserts else None, pl.concat(deletes) if deletes else None, max(lows, default=None))
