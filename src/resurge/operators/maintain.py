"""Maintain the newest value per key of one or more streams of updates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from resurge.errors import TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.base import Batch, EpochContext, Outcome
from resurge.operators.keyed import KeyedOperator, earlier, not_before
from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import State

STREAM = "stream"
_BUCKET = "__time"


@dataclass(frozen=True)
class Maintain(KeyedOperator):
    """Keeps, per stream and key, the newest row; emits each row with the name of the stream it came from.

    Rows whose event time lies more than `retention_us` before the watermark are forgotten.
    """

    KIND = "maintain"

    identity: tuple[str, ...]
    time: str
    retention_us: int = 0

    @property
    def determinism(self) -> Determinism:
        """Rebuilt from the updates that come."""
        return Determinism.CONVERGENT

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """The common schema and the stream's name."""
        first = inputs[0]
        described = self.described
        for name, other in zip(self.inputs[1:], inputs[1:], strict=True):
            if other.schema != first.schema:
                raise TopologyError(f"{described}: {name!r} and {self.inputs[0]!r} differ; expected the same columns: align them")
        for column in (*self.key, *self.identity):
            first.key_column(column, described)
        if STREAM in first.schema:
            raise TopologyError(f"{described}: its input has a column {STREAM!r}, which this operator adds: rename it")
        first.column(self.time, described)
        return StreamShape(pl.Schema({STREAM: pl.String(), **first.schema}), self.time)

    def tables(self, inputs: Sequence[StreamShape]) -> Mapping[str, TableSpec]:
        """The newest row per stream, key and identity; the event time is the bucket."""
        columns = {STREAM: pl.String(), **inputs[0].schema, _BUCKET: pl.Int64()}
        identity = dict.fromkeys((STREAM, *self.key, *self.identity))
        return {"newest": TableSpec(pl.Schema(columns), tuple(identity), _BUCKET, self.key)}

    def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
        """The last row of each key replaces what was kept."""
        table, low = state["newest"], earlier(context.closing_us, self.retention_us)
        pieces = [
            batch.frame.select(pl.lit(name).alias(STREAM), pl.all())
            for name, batch in zip(self.inputs, inputs, strict=True)
            if batch.frame.height
        ]
        columns = [name for name in table.spec.schema if name != _BUCKET]
        if not pieces:
            output = pl.DataFrame(schema={name: table.spec.schema[name] for name in columns})
            return Outcome(output, {"newest": TableDelta(low=low)})
        rows = pl.concat(pieces) if len(pieces) > 1 else pieces[0]
        newest = rows.unique(subset=list(table.spec.key), keep="last", maintain_order=True)
        kept = newest.with_columns(pl.col(self.time).dt.epoch("us").alias(_BUCKET))
        return Outcome(newest, {"newest": TableDelta(not_before(kept, _BUCKET, low), low=low)})

    def signature(self) -> str:
        """Inputs are fixed for the life of a job; the key is told by the state's table."""
        return f"Maintain({', '.join(self.inputs)})"
