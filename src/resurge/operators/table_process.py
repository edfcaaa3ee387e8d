"""User-defined stateful operators on whole tables: one function per epoch and key group."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from resurge.errors import JobError, TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.base import Batch, EpochContext, Outcome, StatefulOperator
from resurge.operators.keyed_process import check_keyed, check_names, checked_output, fitting
from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import KeyedTable, State

_KEY = "__key"

TableFunction = Callable[[pl.DataFrame, pl.DataFrame], tuple[pl.DataFrame, pl.DataFrame]]


@dataclass(frozen=True)
class TableProcess(StatefulOperator):
    """Calls one function per epoch and key group: `function(state rows, input rows) -> (new state rows, output rows)`.

    The state rows given are those of the keys in the input, key columns first, in the order in which the keys first
    appear; a key seen for the first time has none. Those returned replace them: a key left out is forgotten, and only rows
    that differ are written. The function is not called for an epoch without rows.
    """

    key: tuple[str, ...]
    function: TableFunction
    output: pl.Schema
    state_columns: pl.Schema
    event_time: str | None = None
    event_time_delay_us: int = 0
    declared: Determinism = Determinism.DETERMINISTIC

    @property
    def determinism(self) -> Determinism:
        """What the user declares."""
        return self.declared

    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The key columns of its only input."""
        return (self.key,)

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """The declared output."""
        described = f"table process {self.name!r}"
        check_keyed(described, self.key, inputs[0])
        if not self.state_columns:
            raise TopologyError(f"{described} declares no state; expected at least one column, or use a map")
        check_names(described, self.key, self.state_columns)
        return checked_output(described, self.output, self.event_time)

    def tables(self, inputs: Sequence[StreamShape]) -> Mapping[str, TableSpec]:
        """One row per key."""
        key: dict[str, pl.DataType] = {name: inputs[0].schema[name] for name in self.key}
        return {"state": TableSpec(pl.Schema({**key, **self.state_columns}), self.key)}

    def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
        """Run the user's function on the keys of this epoch's rows."""
        table, rows = state["state"], inputs[0].frame
        if not rows.height:
            return Outcome(pl.DataFrame(schema=self.output))
        touched = rows.select(self.key).unique(maintain_order=True)
        touched = touched.filter(pl.Series(table.contains(touched), dtype=pl.Boolean))
        before = touched.hstack(table.lookup(touched))
        after, output = self._run(before, rows, table)
        unchanged = _same_rows(before, after, self.key)
        gone = touched.join(after, on=list(self.key), how="anti", nulls_equal=True, maintain_order="left")
        changes = {"state": TableDelta(after.filter(~unchanged), gone)}
        return Outcome(fitting(output, self.output, f"table process {self.name!r}"), changes)

    def _run(self, before: pl.DataFrame, rows: pl.DataFrame, table: KeyedTable) -> tuple[pl.DataFrame, pl.DataFrame]:
        described = f"table process {self.name!r}"
        made = self.function(before, rows)
        if not isinstance(made, tuple) or len(made) != 2 or not all(isinstance(frame, pl.DataFrame) for frame in made):
            raise JobError(f"{described} returned {type(made).__name__}; expected two frames: new state rows and output rows")
        after = fitting(made[0], table.spec.schema, f"the state of {described}")
        key = list(self.key)
        foreign = after.select(key).join(rows, on=key, how="anti", nulls_equal=True)
        if foreign.height or after.select(key).is_duplicated().any():
            raise JobError(
                f"{described} returned two state rows for a key, or one for a key without input; expected one per key given"
            )
        return after, made[1]

    @property
    def keeps_key(self) -> bool:
        """A user's function may emit rows of other keys."""
        return False

    @property
    def takes_all_keys(self) -> bool:
        """The function sees one key group at a time: what it does with rows of others is not known."""
        return False

    def watermark_delay_us(self) -> int:
        """What the user declares."""
        return self.event_time_delay_us

    def signature(self) -> str:
        """The key is fixed for the life of a job."""
        return f"TableProcess({', '.join(self.inputs)}; {', '.join(self.key)})"


def _same_rows(before: pl.DataFrame, after: pl.DataFrame, key: tuple[str, ...]) -> pl.Series:
    """Which rows of the new state are as they were."""
    values = [name for name in after.columns if name not in key]
    known = before.with_columns(pl.lit(True).alias(_KEY))
    beside = after.join(known, on=list(key), how="left", nulls_equal=True, maintain_order="left", suffix="__old")
    equal = [pl.col(name).eq_missing(pl.col(f"{name}__old")) for name in values]
    return beside.select(pl.all_horizontal(pl.col(_KEY).is_not_null(), *equal)).to_series()
