"""Keyed state as immutable sorted runs: a changed key is found, and written, without touching the rest.

A `KeyedTable` is a list of runs, oldest first, each ordered by the hash of the routing key and then by that of the whole
key, so that the rows of a key group lie together. A newer run's row hides an older run's row of the same key. Applying a
`TableDelta` makes a new table that shares all older runs, so the version before an epoch attempt stays as it was. Runs are
merged when the newer ones have grown to a good part of the older. A table can be cut to some key groups (`within`), and
tables of different key groups can be joined (`joined`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from resurge.operators.columns import columns_of, taken
from resurge.operators.hashing import Hashes, key_group_ends
from resurge.operators.sorted_runs import (
    DELETED,
    Run,
    TableChange,
    TableDelta,
    TableSpec,
    alive,
    interleaved,
    merge,
    places_in,
    run_of,
    unexpired,
    within,
)

MERGE_FACTOR = 3
LARGE_ROWS = 50_000
"""A run that would have more rows is not made when tables are joined: that would take as long as the state is large."""
MOST_APART = 6
"""So many runs are left as they are when tables are joined; every lookup looks into each of them."""
_MIXING, _BITS = 0x9E3779B97F4A7C15, 64


@dataclass(frozen=True)
class KeyedTable:
    """One state table of one or more partitions at one version."""

    spec: TableSpec
    runs: tuple[Run, ...] = ()
    low: int | None = None

    def lookup(self, keys: pl.DataFrame, routing: Hashes | None = None) -> pl.DataFrame:
        """The table's rows for these keys, in the keys' order; a key that has none gives a row of nulls."""
        values = [name for name in self.spec.schema if name not in self.spec.key]
        found, owners, positions = self._find(keys, routing)
        pieces = []
        order = []
        for index, run in enumerate(self.runs):
            mine = np.flatnonzero(found & (owners == index))
            if mine.size:
                pieces.append(taken(columns_of(run.rows, values), positions[mine]))
                order.append(mine)
        missing = np.flatnonzero(~found)
        if missing.size:
            empty = pl.DataFrame({name: pl.Series([], dtype=self.spec.schema[name]) for name in values})
            pieces.append(empty.clear(int(missing.size)))
            order.append(missing)
        if not pieces:
            return pl.DataFrame(schema={name: self.spec.schema[name] for name in values})
        if len(pieces) == 1:
            return pieces[0]
        place = np.empty(keys.height, dtype=np.int64)
        place[np.concatenate(order)] = np.arange(keys.height)
        return taken(pl.concat(pieces, rechunk=True), place)

    def numbers(self, keys: pl.DataFrame, names: Sequence[str], routing: Hashes) -> list[npt.NDArray[Any]]:
        """The values of number columns for these keys, in the keys' order; 0 for a key that has none."""
        found, owners, positions = self._find(keys, routing)
        values = [np.zeros(keys.height, dtype=np.float64 if self.spec.schema[name].is_float() else np.int64) for name in names]
        for index, run in enumerate(self.runs):
            mine = np.flatnonzero(found & (owners == index))
            for name, column in zip(names, values, strict=True):
                column[mine] = run.rows.get_column(name).to_numpy()[positions[mine]]
        return values

    @property
    def highest_bucket(self) -> int | None:
        """The newest bucket of any row, or None for a table that is empty or has no buckets."""
        return max((run.highest_bucket for run in self.runs if run.highest_bucket is not None), default=None)

    def contains(self, keys: pl.DataFrame) -> npt.NDArray[np.bool_]:
        """Which of these keys have a row."""
        return self._find(keys)[0]

    def between(self, low: int | None, high: int) -> pl.DataFrame:
        """The rows whose bucket is in [low, high), each key's newest only."""
        bucket = self._bucket()
        condition = pl.col(bucket) < high
        if low is not None:
            condition &= pl.col(bucket) >= low
        return self._newest(condition)

    def rows(self) -> pl.DataFrame:
        """Every row of the table."""
        return self._newest(None)

    def apply(self, delta: TableDelta) -> "KeyedTable":
        """The table after a change; this one is unchanged."""
        return self.changed(self.change(delta))

    def change(self, delta: TableDelta) -> TableChange:
        """What a delta adds to this table; a copy of the table can be changed by it too."""
        older = unexpired(self.spec, self.runs, _latest(self.low, delta.low))
        return TableChange(run_of(self.spec, delta, has_older=bool(older)), delta.low)

    def changed(self, change: TableChange) -> "KeyedTable":
        """The table after a change; this one is unchanged."""
        low = _latest(self.low, change.low)
        runs = unexpired(self.spec, self.runs, low)
        if change.run is not None:
            runs = self._merged(unexpired(self.spec, (*runs, change.run), low), low)
        return KeyedTable(self.spec, runs, low)

    def within(self, groups: Sequence[int], key_groups: int) -> "KeyedTable":
        """The same table with the rows of these key groups only."""
        return replace(self, runs=tuple(run for run in (within(run, groups, key_groups) for run in self.runs) if run.height))

    def rows_per_group(self, key_groups: int) -> npt.NDArray[np.int64]:
        """How many rows (superseded ones included) each key group has."""
        ends = [key_group_ends(run.hashes, key_groups) for run in self.runs]
        return np.diff(np.sum(ends, axis=0), prepend=0) if ends else np.zeros(key_groups, dtype=np.int64)

    def size(self) -> tuple[int, int]:
        """Rows (superseded ones included) and bytes held."""
        return sum(run.height for run in self.runs), sum(int(run.rows.estimated_size()) + 8 * run.height for run in self.runs)

    def _bucket(self) -> str:
        if self.spec.bucket is None:
            raise ValueError("expected a table with a bucket column")
        return self.spec.bucket

    def _find(
        self, keys: pl.DataFrame, routing: Hashes | None = None
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """For each key: whether it has a row, in which run, and where in it."""
        count = keys.height
        found = np.zeros(count, dtype=np.bool_)
        owners = np.full(count, -1, dtype=np.int64)
        positions = np.zeros(count, dtype=np.int64)
        if not self.runs or not count:
            return found, owners, positions
        wanted = columns_of(keys, self.spec.key)
        hashes = self.spec.hashes(wanted, routing)
        open_rows = np.argsort(hashes, kind="stable")
        for index in range(len(self.runs) - 1, -1, -1):
            hit, where = places_in(self.runs[index], hashes[open_rows], wanted, open_rows, self.spec.key)
            rows = open_rows[hit]
            owners[rows] = index
            positions[rows] = where[hit]
            found[rows] = True
            if self.runs[index].has_markers:
                # Gathered first: the whole column would be unpacked from its bits, which takes as long as the state is large.
                found[rows] = ~self.runs[index].rows.get_column(DELETED).gather(where[hit]).to_numpy()
            open_rows = open_rows[~hit]
            if not open_rows.size:
                break
        if self.spec.bucket is not None and self.low is not None:
            self._hide_expired(self.spec.bucket, self.low, keys, (found, owners, positions))
        return found, owners, positions

    def _hide_expired(
        self,
        bucket: str,
        low: int,
        keys: pl.DataFrame,
        where: tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64], npt.NDArray[np.int64]],
    ) -> None:
        found, owners, positions = where
        if self.spec.key_tells_bucket:
            found &= alive(keys.get_column(bucket), low)
            return
        for index, run in enumerate(self.runs):
            mine = np.flatnonzero(found & (owners == index))
            found[mine] = alive(run.rows.get_column(bucket)[positions[mine]], low)

    def _newest(self, condition: pl.Expr | None) -> pl.DataFrame:
        if self.low is not None and self.spec.bucket is not None:
            kept = pl.col(self.spec.bucket) >= self.low
            condition = kept if condition is None else condition & kept
        early = condition if self.spec.key_tells_bucket else None
        pieces = [run.rows if early is None else run.rows.filter(early) for run in self.runs]
        pieces = [piece for piece in pieces if piece.height]
        if not pieces:
            return pl.DataFrame(schema=self.spec.schema)
        if len(pieces) > 1:
            newest = pl.concat(pieces).unique(subset=list(self.spec.key), keep="last", maintain_order=True)
        else:
            newest = pieces[0]
        if condition is not None and not self.spec.key_tells_bucket:
            newest = newest.filter(condition)
        return newest.filter(~pl.col(DELETED)).select(list(self.spec.schema))

    def _merged(self, runs: tuple[Run, ...], low: int | None) -> tuple[Run, ...]:
        waiting = list(runs)
        while len(waiting) > 1 and waiting[-2].height <= _merge_factor(waiting[-2]) * waiting[-1].height:
            newer = waiting.pop()
            waiting[-1] = merge(self.spec, [waiting[-1], newer], low, drop_markers=len(waiting) == 1)
        return tuple(run for run in waiting if run.height)


def _merge_factor(older: Run) -> float:
    """How many times larger than all newer rows a run must be to stay as it is: the usual number, give or take a sixth.

    Tables that grow alike would otherwise all be merged in the same epoch, which would take several times as long as the others.
    """
    mixed = (int(older.hashes[-1]) + older.height) * _MIXING % (1 << _BITS)
    return MERGE_FACTOR * (5 / 6 + mixed / (1 << _BITS) / 3)


def joined(tables: Sequence[KeyedTable]) -> KeyedTable:
    """One table of several that have different key groups; runs of similar size become one, but few large ones stay apart."""
    waiting = [[(frozenset({index}), run) for run in table.runs] for index, table in enumerate(tables)]
    kept: list[tuple[frozenset[int], Run]] = []
    while any(waiting):
        # A table's own runs stay in their order: a newer row hides an older one.
        largest = max((runs for runs in waiting if runs), key=lambda runs: runs[0][1].height)
        kept.append(largest.pop(0))
        while len(kept) > 1 and _are_joined(kept[-2][1], kept[-1][1], len(kept)) and kept[-2][0].isdisjoint(kept[-1][0]):
            (others, last), (owners, run) = kept.pop(), kept.pop()
            kept.append((owners | others, interleaved(run, last)))
    return KeyedTable(tables[0].spec, tuple(run for _, run in kept), _latest(*(table.low for table in tables)))


def _are_joined(older: Run, newer: Run, runs: int) -> bool:
    is_similar = older.height <= MERGE_FACTOR * newer.height
    return is_similar and (runs > MOST_APART or older.height + newer.height <= LARGE_ROWS)


def joined_changes(changes: Sequence[TableChange]) -> TableChange:
    """One change of several that are of different key groups."""
    runs = [change.run for change in changes if change.run is not None]
    return TableChange(reduce(interleaved, runs) if runs else None, _latest(*(change.low for change in changes)))


def _latest(*lows: int | None) -> int | None:
    return max((low for low in lows if low is not None), default=None)


State = Mapping[str, KeyedTable]
