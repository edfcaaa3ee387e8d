"""User-defined stateful operators on whole tables: one function per epoch and key group, or for all keys at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from resurge.errors import JobError, TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.base import Batch, EpochContext, Outcome
from resurge.operators.coding import canonical
from resurge.operators.hashing import Hashes, hash_rows
from resurge.operators.row_by_row import made_up_table
from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import KeyedTable, State
from resurge.operators.user_process import UserProcess, fitting

_KNOWN = "__known"

TableFunction = Callable[[pl.DataFrame, pl.DataFrame], tuple[pl.DataFrame, pl.DataFrame]]


@dataclass(frozen=True)
class TableProcess(UserProcess):
    """Calls one function per epoch and key group: `function(state rows, input rows) -> (new state rows, output rows)`.

    The state rows given are those of the keys in the input, key columns first, in the order in which the keys first
    appear; a key seen for the first time has none. Those returned replace them: a key left out is forgotten, and only rows
    that differ are written. The function is not called for an epoch without rows.

    A function sees all rows that it is given. So it is given those of one key group, unless the user declares (`per_key`) that
    what it makes of a key depends on that key's rows and state alone. Then it is given the rows of all key groups, and its
    output, in which the key columns say for which key a row was made, comes out key by key, in the order of the keys' hashes.
    """

    KIND = "table process"

    function: TableFunction
    output: pl.Schema
    state_columns: pl.Schema
    per_key: bool = False

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """The declared output."""
        (given,) = inputs
        if not self.state_columns:
            raise TopologyError(f"{self.described} declares no state; expected at least one column, or use a map")
        shape = self.declared_shape(given, self.output, self.state_columns)
        if self.per_key:
            self._check_per_key(given)
        return shape

    def _check_per_key(self, given: StreamShape) -> None:
        for name in self.key:
            if self.output.get(name) != given.schema[name]:
                raise TopologyError(
                    f"{self.described} declares per_key=True, but its output has no column {name!r} of type {given.schema[name]}; "
                    "expected the key columns, which say for which key a row was made: add them, or leave per_key out"
                )
        if self.declared is not Determinism.ARBITRARY and not self._is_same_alone(given):
            raise TopologyError(
                f"{self.described} declares per_key=True, but what it makes of a made-up key depends on the other keys in the table; "
                "expected each key to be treated alone: leave per_key out"
            )

    def _is_same_alone(self, given: StreamShape) -> bool:
        """Whether a made-up table gives the same rows whole and key by key, in two epochs; True where it cannot be told."""
        rows = made_up_table(given.schema)
        if rows is None:
            return True
        try:
            whole = self._two_epochs(rows, given)
            alone = [self._two_epochs(piece, given) for piece in rows.partition_by(self.key, maintain_order=True)]
        except Exception:
            # It does not take what we made up, which says nothing of what it is for.
            return True
        return all(
            self._key_by_key(table)[0].equals(self._key_by_key(pl.concat(pieces))[0])
            for table, *pieces in zip(whole, *alone, strict=True)
        )

    def _two_epochs(self, rows: pl.DataFrame, given: StreamShape) -> tuple[pl.DataFrame, ...]:
        (spec,) = self.tables([given]).values()
        first, made = self.function(pl.DataFrame(schema=spec.schema), rows)
        return first, made, *self.function(first, rows)

    def _key_by_key(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, Hashes]:
        """The rows in the order of their keys' hashes, and these; rows of one key stay in their order."""
        hashes = hash_rows(rows, self.key)
        order = np.argsort(hashes, kind="stable")
        return rows[order], hashes[order]

    def tables(self, inputs: Sequence[StreamShape]) -> Mapping[str, TableSpec]:
        """One row per key."""
        return {"state": self.table(inputs[0].schema, self.state_columns)}

    def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
        """Run the user's function on the keys of this epoch's rows."""
        table, rows = state["state"], inputs[0].frame
        if not rows.height:
            return Outcome(pl.DataFrame(schema=self.output))
        touched = self.touched(rows)
        touched = touched.filter(pl.Series(table.contains(touched), dtype=pl.Boolean))
        before = touched.hstack(table.lookup(touched))
        after, output = self._run(before, rows, table)
        unchanged = _same_rows(before, after, self.key)
        gone = touched.join(after, on=list(self.key), how="anti", nulls_equal=True, maintain_order="left")
        changes = {"state": TableDelta(after.filter(~unchanged), gone)}
        output = fitting(output, self.output, self.described)
        if not self.per_key:
            return Outcome(output, changes)
        self._check_keys(output, rows)
        output, hashes = self._key_by_key(canonical(output, self.key))
        return Outcome(output, changes, routing=hashes)

    def _check_keys(self, output: pl.DataFrame, rows: pl.DataFrame) -> None:
        foreign = output.join(rows, on=list(self.key), how="anti", nulls_equal=True)
        if foreign.height:
            raise JobError(
                f"{self.described} declares per_key=True, but made a row for key {foreign.select(self.key).row(0)}, which "
                "has no input; expected the key columns as they were given: leave per_key out if it makes rows for other keys"
            )

    def _run(self, before: pl.DataFrame, rows: pl.DataFrame, table: KeyedTable) -> tuple[pl.DataFrame, pl.DataFrame]:
        made = self.function(before, rows)
        if not isinstance(made, tuple) or len(made) != 2 or not all(isinstance(frame, pl.DataFrame) for frame in made):
            raise JobError(
                f"{self.described} returned {type(made).__name__}; expected two frames: new state rows and output rows"
            )
        after = fitting(made[0], table.spec.schema, f"the state of {self.described}")
        key = list(self.key)
        foreign = after.select(key).join(rows, on=key, how="anti", nulls_equal=True)
        if foreign.height or after.select(key).is_duplicated().any():
            raise JobError(
                f"{self.described} returned two state rows for a key, or one for a key without input; expected one per key given"
            )
        return after, made[1]

    @property
    def keeps_key(self) -> bool:
        """A user's function may emit rows of other keys, unless it treats each key alone."""
        return self.per_key

    @property
    def takes_all_keys(self) -> bool:
        """What a function does with rows of other keys is not known, unless it is declared."""
        return self.per_key


def _same_rows(before: pl.DataFrame, after: pl.DataFrame, key: tuple[str, ...]) -> pl.Series:
    """Which rows of the new state are as they were."""
    values = [name for name in after.columns if name not in key]
    known = before.with_columns(pl.lit(True).alias(_KNOWN))
    beside = after.join(known, on=list(key), how="left", nulls_equal=True, maintain_order="left", suffix="__old")
    equal = [pl.col(name).eq_missing(pl.col(f"{name}__old")) for name in values]
    return beside.select(pl.all_horizontal(pl.col(_KNOWN).is_not_null(), *equal)).to_series()
