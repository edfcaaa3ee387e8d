"""Running aggregates per key over the whole stream."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from resurge.errors import TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.aggregates import (
    Aggregates,
    final_expressions,
    final_schema,
    merge_with,
    partial_schema,
)
from resurge.operators.base import Batch, EpochContext, Outcome, StatefulOperator
from resurge.operators.combining import Combiner
from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import State
from resurge.operators.window_sums import merged_parts

_OLD = "__old"


@dataclass(frozen=True)
class KeyedAggregate(StatefulOperator):
    """Aggregates per key; emits the new value of every key that changed in the epoch."""

    key: tuple[str, ...]
    aggregates: Aggregates

    @property
    def determinism(self) -> Determinism:
        """Restarted from empty state it does not converge: it counts from the beginning."""
        return Determinism.DETERMINISTIC

    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The key columns of its only input."""
        return (self.key,)

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """Key and aggregates; no event time."""
        (given,) = inputs
        described = f"aggregate {self.name!r}"
        if not self.key:
            raise TopologyError(f"{described} has no key; expected at least one key column: add a constant one in a map before")
        columns = {name: given.key_column(name, described) for name in self.key}
        for name, kind in final_schema(self.aggregates, given, described).items():
            if name in columns:
                raise TopologyError(f"{described}: aggregate {name!r} has the name of a key column; rename it")
            columns[name] = kind
        return StreamShape(pl.Schema(columns), None)

    def combiner(self, shape: StreamShape) -> Combiner:
        """Parts per key."""
        return Combiner(self.key, self.aggregates, operators=(self.name,))

    def tables(self, inputs: Sequence[StreamShape]) -> Mapping[str, TableSpec]:
        """Parts per key."""
        (given,) = inputs
        columns: dict[str, pl.DataType] = {name: given.schema[name] for name in self.key}
        columns.update(partial_schema(self.aggregates, given, f"aggregate {self.name!r}"))
        return {"aggregates": TableSpec(pl.Schema(columns), self.key)}

    def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
        """Merge the epoch's parts with the state of the keys that came."""
        table, given = state["aggregates"], inputs[0]
        keys = given.coded(self.key)
        parts = merged_parts(given.frame, keys.codes, keys.keys.height, self.aggregates)
        changed = keys.keys.hstack(parts)
        if changed.height and table.runs:
            older = table.lookup(changed, keys.hashes).rename(lambda name: name + _OLD)
            changed = changed.hstack(older).with_columns(merge_with(self.aggregates, _OLD, parts.schema)).select(changed.columns)
        output = changed.select(*self.key, *final_expressions(self.aggregates))
        return Outcome(output, {"aggregates": TableDelta(changed, routing=keys.hashes)}, routing=keys.hashes)

    def signature(self) -> str:
        """The key is fixed for the life of a job."""
        return f"KeyedAggregate({', '.join(self.inputs)}; {', '.join(self.key)})"
