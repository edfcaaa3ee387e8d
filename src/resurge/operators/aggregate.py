"""Running aggregates per key over the whole stream."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from resurge.model.operator import Determinism, StreamShape
from resurge.operators.adding import added
from resurge.operators.aggregates import (
    Aggregates,
    final_expressions,
    final_schema,
    merge_with,
    partial_schema,
)
from resurge.operators.base import Batch, EpochContext, Outcome
from resurge.operators.combining import Combiner
from resurge.operators.hashing import Hashes
from resurge.operators.keyed import KeyedOperator, distinct_columns
from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import KeyedTable, State
from resurge.operators.window_sums import merged_parts

_OLD = "__old"


@dataclass(frozen=True)
class KeyedAggregate(KeyedOperator):
    """Aggregates per key; emits the new value of every key that changed in the epoch."""

    KIND = "aggregate"

    aggregates: Aggregates

    @property
    def determinism(self) -> Determinism:
        """Restarted from empty state it does not converge: it counts from the beginning."""
        return Determinism.DETERMINISTIC

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """Key and aggregates; no event time."""
        (given,) = inputs
        results = final_schema(self.aggregates, given, self.described)
        return StreamShape(distinct_columns(self.described, self.key_columns(given), results), None)

    def combiner(self, shape: StreamShape) -> Combiner:
        """Parts per key."""
        return Combiner(self.key, self.aggregates, operators=(self.name,))

    def tables(self, inputs: Sequence[StreamShape]) -> Mapping[str, TableSpec]:
        """Parts per key."""
        (given,) = inputs
        return {"aggregates": self.table(given.schema, partial_schema(self.aggregates, given, self.described))}

    def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
        """Merge the epoch's parts with the state of the keys that came."""
        table, given = state["aggregates"], inputs[0]
        keys = given.coded(self.key)
        parts = merged_parts(given.frame, keys.codes, keys.keys.height, self.aggregates)
        changed = keys.keys.hstack(parts)
        if changed.height and table.runs:
            changed = self._with_older(table, changed, keys.hashes)
        output = changed.select(*self.key, *final_expressions(self.aggregates))
        return Outcome(output, {"aggregates": TableDelta(changed, hashes=keys.hashes)}, routing=keys.hashes)

    def _with_older(self, table: KeyedTable, changed: pl.DataFrame, hashes: Hashes) -> pl.DataFrame:
        """The parts of the keys that came, merged with those in state."""
        parts = added(table, changed, hashes, np.arange(changed.height), self.aggregates)
        if parts is not None:
            return pl.DataFrame([*(changed.get_column(name) for name in self.key), *parts])
        older = table.lookup(changed, hashes).rename(lambda name: name + _OLD)
        merging = merge_with(self.aggregates, _OLD, changed.schema)
        return changed.hstack(older).with_columns(merging).select(changed.columns)
