"""The k best rows of each group, kept up to date as rows are replaced.

State has the newest row of every identity, and each group's present ranking. A group's new ranking follows from the old
one and the epoch's rows alone, unless a ranked row fell behind the old k-th: only then are the group's other rows read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from resurge.errors import TopologyError
from resurge.model.operator import ORDERED_TYPES, Determinism, StreamShape
from resurge.operators.base import Batch, EpochContext, Outcome, left_out, numbered
from resurge.operators.combining import time_us
from resurge.operators.keyed import KeyedOperator, earlier, not_before
from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import KeyedTable, State

RANK = "rank"
_EXPIRE = "__expire"
_GROUP = "__group"
_RANKED = "__ranked"
_OLD = "__old"


@dataclass(frozen=True)
class TopK(KeyedOperator):
    """Ranks the rows of each group by a column; emits the whole ranking of every group whose ranking changed in the epoch.

    The key is the group: without key columns, everything is one. A later row of the same group and `identity` replaces the earlier
    one. Equal values are ranked by identity, nulls last. Where `expire` names a time column of the key, a group is forgotten, and rows for
    it are late, once the watermark has reached its time plus the lateness; that column is then the output's event time.
    """

    KIND = "top_k"

    by: str
    k: int
    identity: tuple[str, ...]
    descending: bool = True
    expire: str | None = None
    lateness_us: int = 0

    @property
    def determinism(self) -> Determinism:
        """Groups that expire are rebuilt from new rows; a ranking that lasts needs every row since the beginning."""
        return Determinism.DETERMINISTIC if self.expire is None else Determinism.CONVERGENT

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        """Group, rank, and the row's other columns."""
        (given,) = inputs
        described = self.described
        self._check_order(given, described)
        for column in (*self.key, *self.identity):
            given.key_column(column, described)
        if not isinstance(self.k, int) or self.k < 1 or not self.identity or self.lateness_us < 0:
            raise TopologyError(
                f"{described} has k = {self.k!r}, identity columns {self.identity} and a lateness of {self.lateness_us} us; "
                "expected a k of at least 1, at least one identity column and a lateness of zero or more"
            )
        if self.expire is not None and (self.expire not in self.key or given.schema[self.expire].base_type() != pl.Datetime):
            raise TopologyError(
                f"{described} expires by {self.expire!r}; expected a Datetime column among {self.key}, which it ranks per"
            )
        if RANK in given.schema:
            raise TopologyError(
                f"{described}: its input has a column {RANK!r}, which this operator adds: rename it in a map before"
            )
        per: dict[str, pl.DataType] = {name: given.schema[name] for name in self.key}
        return StreamShape(pl.Schema({**per, RANK: pl.Int64(), **self._others(given.schema)}), self.expire)

    def _check_order(self, given: StreamShape, described: str) -> None:
        if not isinstance(self.by, str):
            raise TopologyError(
                f"{described} ranks by {self.by!r}; expected the name of one column: rank by several by making one of them in a map "
                "before, such as a number of points"
            )
        kind = given.column(self.by, described)
        if kind.base_type() not in ORDERED_TYPES:
            raise TopologyError(
                f"{described} ranks by {self.by!r} of type {kind}; expected a number, string, boolean, binary, date or time: "
                "take a field of it, or cast it, in a map before"
            )

    def _others(self, schema: pl.Schema) -> dict[str, pl.DataType]:
        return {name: kind for name, kind in schema.items() if name not in self.key}

    @property
    def _group_key(self) -> tuple[str, ...]:
        return self.key if self.expire is None else (_EXPIRE, *self.key)

    def tables(self, inputs: Sequence[StreamShape]) -> Mapping[str, TableSpec]:
        """The newest row per group and identity, and each group's ranking."""
        schema, others = inputs[0].schema, self._others(inputs[0].schema)
        time: dict[str, pl.DataType] = {} if self.expire is None else {_EXPIRE: pl.Int64()}
        bucket = None if self.expire is None else _EXPIRE
        groups = self.table(schema, others, before=time, bucket=bucket)
        row_key = tuple(dict.fromkeys((*self._group_key, *self.identity)))
        ranking = self.table(schema, others, before=time, after={RANK: pl.Int64()}, bucket=bucket)
        return {"rows": replace(groups, key=row_key), "ranking": ranking}

    def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
        """Replace rows, rank the groups they belong to again, and forget groups that the watermark has passed."""
        given = inputs[0].frame
        columns = list(state["rows"].spec.schema)
        in_time = self._timely(numbered(given), self._low(context.watermark_us))
        late = left_out(given, in_time)
        timely = in_time.select(columns)
        newest = timely.unique(subset=list(state["rows"].spec.key), keep="last", maintain_order=True)
        low = self._low(context.closing_us)
        changed = self._changed(state, newest)
        kept = [not_before(rows, _EXPIRE, low) for rows in (newest, changed)]
        changes = {"rows": TableDelta(kept[0], low=low), "ranking": TableDelta(kept[1].drop(_GROUP), low=low)}
        output = changed.select(*self.key, RANK, *self._others(inputs[0].schema))
        return Outcome(output, changes, late.height, (late,))

    def _low(self, watermark_us: int | None) -> int | None:
        """Groups whose time lies before this are forgotten."""
        return None if self.expire is None else earlier(watermark_us, self.lateness_us - 1)

    def _timely(self, rows: pl.DataFrame, low: int | None) -> pl.DataFrame:
        if self.expire is None:
            return rows
        # A group without time would never be forgotten: its rows count as late.
        timed = rows.with_columns(time_us(self.expire).alias(_EXPIRE)).filter(pl.col(_EXPIRE).is_not_null())
        return not_before(timed, _EXPIRE, low)

    def _changed(self, state: State, newest: pl.DataFrame) -> pl.DataFrame:
        """The new rankings of the groups whose ranking these rows change."""
        groups = self._groups(newest)
        grouped = self._in_groups(newest, groups)
        if not grouped.height:
            return grouped.with_columns(pl.lit(0, pl.Int64).alias(RANK))
        ranked = self._ranked(state["ranking"], groups).select(*grouped.columns, RANK)
        rivals = self._replaced(ranked.drop(RANK), grouped)
        best = self._best(rivals)
        unsure = self._unsure(ranked, best)
        if unsure.height:
            all_rows = self._in_groups(state["rows"].rows(), groups.join(unsure, on=_GROUP, how="semi")).select(grouped.columns)
            read_again = self._best(self._replaced(all_rows, grouped.join(unsure, on=_GROUP, how="semi", maintain_order="left")))
            best = pl.concat([best.join(unsure, on=_GROUP, how="anti"), read_again]).sort(_GROUP, RANK)
        return best.join(_differing(ranked, best), on=_GROUP, how="semi", maintain_order="left")

    def _groups(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The groups of these rows, numbered in order of first appearance."""
        if not self._group_key:
            return pl.DataFrame({_GROUP: [0] if rows.height else []}, schema={_GROUP: pl.UInt32})
        return rows.select(self._group_key).unique(maintain_order=True).with_row_index(_GROUP)

    def _in_groups(self, rows: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
        """The rows of these groups, with the group's number."""
        if not self._group_key:
            return rows.with_columns(pl.lit(0, pl.UInt32).alias(_GROUP))
        return rows.join(groups, on=list(self._group_key), nulls_equal=True, maintain_order="left")

    def _ranked(self, ranking: KeyedTable, groups: pl.DataFrame) -> pl.DataFrame:
        """The present rankings of these groups."""
        slots = groups.join(pl.DataFrame({RANK: range(1, self.k + 1)}, schema={RANK: pl.Int64}), how="cross")
        filled = slots.filter(pl.Series(ranking.contains(slots), dtype=pl.Boolean))
        return filled.hstack(ranking.lookup(filled))

    def _replaced(self, rows: pl.DataFrame, newer: pl.DataFrame) -> pl.DataFrame:
        """The rows, with newer ones of the same identity in place of older."""
        kept = rows.join(newer, on=[_GROUP, *self.identity], how="anti", nulls_equal=True)
        return pl.concat([kept, newer])

    def _sorted(self, rows: pl.DataFrame, *last: str) -> pl.DataFrame:
        columns = [_GROUP, self.by, *self.identity, *last]
        return rows.sort(columns, descending=[name == self.by and self.descending for name in columns], nulls_last=True)

    def _best(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The first k rows of each group, with their rank."""
        rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over(_GROUP).alias(RANK)
        return self._sorted(rows).with_columns(rank).filter(pl.col(RANK) <= self.k)

    def _unsure(self, ranked: pl.DataFrame, best: pl.DataFrame) -> pl.DataFrame:
        """The groups whose k-th row is now worse than the k-th was: a row outside the ranking may be better."""
        last = [
            rows.filter(pl.col(RANK) == self.k).with_columns(pl.lit(old).alias(_OLD)) for rows, old in ((best, 0), (ranked, 1))
        ]
        first = self._sorted(pl.concat(last), _OLD).unique(_GROUP, keep="first", maintain_order=True)
        was_full = last[1].select(_GROUP)
        return first.filter(pl.col(_OLD) == 1).select(_GROUP).join(was_full, on=_GROUP, how="semi")

    def watermark_delay_us(self) -> int:
        """A group that is emitted has a time at most the lateness before the watermark."""
        return self.lateness_us

    def signature(self) -> str:
        """What is ranked, and how, is fixed for the life of a job."""
        ranked = f"per {', '.join(self.key)}; by {self.by}; {self.k} of {', '.join(self.identity)}"
        order = "largest" if self.descending else "smallest"
        return f"TopK({', '.join(self.inputs)}; {ranked}; {order} first; expire {self.expire} + {self.lateness_us})"


def _differing(ranked: pl.DataFrame, best: pl.DataFrame) -> pl.DataFrame:
    """The groups in which a rank is held by another row than before."""
    marked = ranked.with_columns(pl.lit(True).alias(_RANKED))
    beside = best.join(marked, on=[_GROUP, RANK], how="left", suffix=_OLD, maintain_order="left")
    compared = [name for name in best.columns if name not in (_GROUP, RANK)]
    differs = [pl.col(name).ne_missing(pl.col(name + _OLD)) for name in compared]
    return beside.filter(pl.any_horizontal(pl.col(_RANKED).is_null(), *differs)).select(_GROUP).unique()
