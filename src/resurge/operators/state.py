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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from resurge.operators.columns import Places, columns_of, gathered, taken
from resurge.operators.hashing import Hashes
from resurge.operators.sorted_runs import (
    DELETED,
    Run,
    TableChange,
    TableDelta,
    TableSpec,
    alive,
    interleaved,
    is_sorted,
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


class Hits(NamedTuple):
    """Rows of a table of keys, and where each one's key stands in a run."""

    run: Run
    rows: Places
    places: Places


@dataclass(frozen=True)
class KeyedTable:
    """One state table of one or more partitions at one version."""

    spec: TableSpec
    runs: tuple[Run, ...] = ()
    low: int | None = None

    def lookup(self, keys: pl.DataFrame, hashes: Hashes | None = None) -> pl.DataFrame:
        """The table's rows for these keys, in the keys' order; a key that has none gives a row of nulls."""
        values = {name: kind for name, kind in self.spec.schema.items() if name not in self.spec.key}
        found = self._find(keys, hashes)
        pieces = [taken(columns_of(hits.run.rows, [*values]), hits.places) for hits in found]
        place = np.full(keys.height, sum(piece.height for piece in pieces), dtype=np.int64)
        for hits, first in zip(found, np.cumsum([0, *(piece.height for piece in pieces)]), strict=False):
            place[hits.rows] = first + np.arange(hits.rows.size)
        pieces.append(pl.DataFrame(schema=values).clear(1))
        return taken(pl.concat(pieces, rechunk=True), place)

    def numbers(self, keys: pl.DataFrame, names: Sequence[str], hashes: Hashes) -> list[npt.NDArray[Any]]:
        """The values of number columns for these keys, in the keys' order; 0 for a key that has none."""
        values = [np.zeros(keys.height, dtype=np.float64 if self.spec.schema[name].is_float() else np.int64) for name in names]
        for run, rows, places in self._find(keys, hashes):
            for name, column in zip(names, values, strict=True):
                column[rows] = run.rows.get_column(name).to_numpy().take(places)
        return values

    @property
    def highest_bucket(self) -> int | None:
        """The newest bucket of any row, or None for a table that is empty or has no buckets."""
        return max((run.highest_bucket for run in self.runs if run.highest_bucket is not None), default=None)

    def contains(self, keys: pl.DataFrame) -> npt.NDArray[np.bool_]:
        """Which of these keys have a row."""
        found = np.zeros(keys.height, dtype=np.bool_)
        for hits in self._find(keys):
            found[hits.rows] = True
        return found

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
        ends = [run.index.group_ends(key_groups) for run in self.runs]
        return np.diff(np.sum(ends, axis=0), prepend=0) if ends else np.zeros(key_groups, dtype=np.int64)

    def size(self) -> tuple[int, int]:
        """Rows (superseded ones included) and bytes held."""
        return sum(run.height for run in self.runs), sum(int(run.rows.estimated_size()) + 8 * run.height for run in self.runs)

    def _bucket(self) -> str:
        if self.spec.bucket is None:
            raise ValueError("expected a table with a bucket column")
        return self.spec.bucket

    def _find(self, keys: pl.DataFrame, hashes: Hashes | None = None) -> list[Hits]:
        """Those of the keys that have a row, and where, for each run that has any of them."""
        if not self.runs or not keys.height:
            return []
        wanted = columns_of(keys, self.spec.key)
        if hashes is None:
            hashes = self.spec.hashes(wanted)
        if is_sorted(hashes):
            rows = np.arange(hashes.size)
        else:
            rows = np.argsort(hashes)
            hashes = hashes[rows]
        is_open = np.ones(rows.size, dtype=np.bool_)
        found = []
        for run in reversed(self.runs):
            # Newer runs are small against the state: they lack most keys. The oldest has most of what is left.
            asked = np.flatnonzero(is_open & run.index.may_have(hashes) if run is not self.runs[0] else is_open)
            hits, places = places_in(run, hashes[asked], wanted, rows[asked], self.spec.key)
            if hits.size:
                is_open[asked[hits]] = False
                found.append(self._alive(Hits(run, rows[asked[hits]], places), keys))
                if not is_open.any():
                    break
        return found

    def _alive(self, hits: Hits, keys: pl.DataFrame) -> Hits:
        """Without rows that are deleted or expired: they hide older ones, but are not there."""
        kept = np.ones(hits.rows.size, dtype=np.bool_)
        if hits.run.has_markers:
            # Gathered first: the whole column would be unpacked from its bits, which takes as long as the state is large.
            kept &= ~gathered(hits.run.rows.get_column(DELETED), hits.places).to_numpy()
        if self.spec.bucket is not None and self.low is not None:
            buckets, places = (keys, hits.rows) if self.spec.key_tells_bucket else (hits.run.rows, hits.places)
            kept &= alive(gathered(buckets.get_column(self.spec.bucket), places), self.low)
        return hits if kept.all() else Hits(hits.run, hits.rows[kept], hits.places[kept])

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
