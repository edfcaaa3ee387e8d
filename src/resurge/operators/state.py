"""Keyed state as immutable sorted runs: a changed key is found, and written, without touching the rest.

A `KeyedTable` is a list of runs, oldest first, each ordered by the hash of the routing key and then by that of the whole
key, so that the rows of a key group lie together. A newer run's row hides an older run's row of the same key. Applying a
`TableDelta` makes a new table that shares all older runs, so the version before an epoch attempt stays as it was. Runs are
merged when the newer ones have grown to a good part of the older. A table can be cut to some key groups (`within`), and
tables of different key groups can be joined (`joined`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from resurge.operators.columns import columns_of, same_keys, taken
from resurge.operators.hashing import Hashes, hash_rows, key_group_ends, routed_hashes

DELETED = "__deleted"
MERGE_FACTOR = 3


@dataclass(frozen=True)
class TableSpec:
    """A state table's columns, key, and (for rows that expire) the integer column that says when.

    `routing` are the key columns that decide the key group; without them the whole key does.
    """

    schema: pl.Schema
    key: tuple[str, ...]
    bucket: str | None = None
    routing: tuple[str, ...] | None = None

    def hashes(self, rows: pl.DataFrame, routing: Hashes | None = None) -> Hashes:
        """What runs are ordered by; `routing` saves computing the hashes of the routing key again."""
        routed_by = self.key if self.routing is None else self.routing
        first = hash_rows(rows, routed_by) if routing is None else routing
        others = tuple(name for name in self.key if name not in routed_by)
        return routed_hashes(first, hash_rows(rows, others)) if others else first

    @property
    def key_tells_bucket(self) -> bool:
        """Whether all versions of a row are in one bucket; if not, only the newest version says whether the row is gone."""
        return self.bucket is None or self.bucket in self.key

    def signature(self) -> str:
        """What must not change between two runs of a job."""
        columns = ", ".join(f"{name}: {kind}" for name, kind in self.schema.items())
        routing = ", ".join(self.key if self.routing is None else self.routing)
        return f"({columns}) key {', '.join(self.key)} routed by {routing} bucket {self.bucket}"


@dataclass(frozen=True)
class TableDelta:
    """What one epoch changed: rows by key, keys removed, and the bucket below which all rows are gone.

    `routing` may have the upserts' hashes of the routing key, where the operator has them already.
    """

    upserts: pl.DataFrame | None = None
    deletes: pl.DataFrame | None = None
    low: int | None = None
    routing: Hashes | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Run:
    """Rows ordered by hash, at most one per key; deleted rows are kept as markers while older runs may have the key.

    `local` is its place in the node's store. `durable` are the blocks of the durable store that have its rows; they may have
    rows of other key groups too.
    """

    hashes: Hashes
    rows: pl.DataFrame
    highest_bucket: int | None = None
    local: str | None = field(default=None, compare=False)
    durable: tuple[str, ...] = field(default=(), compare=False)

    @property
    def height(self) -> int:
        """Rows in the run, markers included."""
        return self.rows.height


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
        low = delta.low if self.low is None else max(self.low, delta.low if delta.low is not None else self.low)
        runs = _unexpired(self.spec, self.runs, low)
        added = _run_of(self.spec, delta, has_older=bool(runs))
        if added is not None:
            runs = self._merged(_unexpired(self.spec, (*runs, added), low), low)
        return KeyedTable(self.spec, runs, low)

    def within(self, groups: Sequence[int], key_groups: int) -> "KeyedTable":
        """The same table with the rows of these key groups only."""
        return replace(self, runs=tuple(run for run in (_within(run, groups, key_groups) for run in self.runs) if run.height))

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
            hit, where = _positions(self.runs[index], hashes[open_rows], wanted, open_rows, self.spec.key)
            rows = open_rows[hit]
            owners[rows] = index
            positions[rows] = where[hit]
            found[rows] = ~self.runs[index].rows.get_column(DELETED).to_numpy()[where[hit]]
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
            found &= _alive(keys.get_column(bucket), low)
            return
        for index, run in enumerate(self.runs):
            mine = np.flatnonzero(found & (owners == index))
            found[mine] = _alive(run.rows.get_column(bucket)[positions[mine]], low)

    def _newest(self, condition: pl.Expr | None) -> pl.DataFrame:
        if self.low is not None and self.spec.bucket is not None:
            alive = pl.col(self.spec.bucket) >= self.low
            condition = alive if condition is None else condition & alive
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
        while len(waiting) > 1 and waiting[-2].height <= MERGE_FACTOR * waiting[-1].height:
            newer = waiting.pop()
            waiting[-1] = merge(self.spec, [waiting[-1], newer], low, drop_markers=len(waiting) == 1)
        return tuple(run for run in waiting if run.height)


def merge(spec: TableSpec, runs: Sequence[Run], low: int | None, drop_markers: bool) -> Run:
    """One run with the newest row of each key; rows below `low` and, at the bottom, deletion markers go."""
    rows = pl.concat([run.rows for run in runs])
    hashes = np.concatenate([run.hashes for run in runs])
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    equal = hashes[1:] == hashes[:-1]
    keep = np.ones(hashes.size, dtype=np.bool_)
    if equal.any():
        keep = _newest_of_equal(spec, rows, order, equal)
    if spec.bucket is not None and low is not None and (spec.key_tells_bucket or drop_markers):
        keep &= _alive(rows.get_column(spec.bucket), low)[order]
    if drop_markers:
        keep &= ~rows.get_column(DELETED).to_numpy()[order]
    kept = order[keep]
    return _as_run(spec, hashes[keep], taken(rows, kept))


def joined(tables: Sequence[KeyedTable]) -> KeyedTable:
    """One table of several that have different key groups; runs of similar size become one."""
    waiting = [[(frozenset({index}), run) for run in table.runs] for index, table in enumerate(tables)]
    kept: list[tuple[frozenset[int], Run]] = []
    while any(waiting):
        # A table's own runs stay in their order: a newer row hides an older one.
        largest = max((runs for runs in waiting if runs), key=lambda runs: runs[0][1].height)
        kept.append(largest.pop(0))
        while len(kept) > 1 and kept[-2][1].height <= MERGE_FACTOR * kept[-1][1].height and kept[-2][0].isdisjoint(kept[-1][0]):
            (others, last), (owners, run) = kept.pop(), kept.pop()
            kept.append((owners | others, _interleaved(run, last)))
    lows = [table.low for table in tables if table.low is not None]
    return KeyedTable(tables[0].spec, tuple(run for _, run in kept), max(lows, default=None))


def _interleaved(left: Run, right: Run) -> Run:
    """One run of two that have different key groups."""
    # It counts as new for the durable store: a block of either may have older rows of the other's key groups.
    hashes = np.concatenate([left.hashes, right.hashes])
    order = np.argsort(hashes, kind="stable")
    buckets = [run.highest_bucket for run in (left, right) if run.highest_bucket is not None]
    return Run(hashes[order], pl.concat([left.rows, right.rows])[order], max(buckets, default=None))


def _within(run: Run, groups: Sequence[int], key_groups: int) -> Run:
    ends = key_group_ends(run.hashes, key_groups)
    starts = np.append(0, ends[:-1])
    wanted = np.zeros(key_groups, dtype=np.bool_)
    wanted[np.asarray(groups, dtype=np.int64)] = True
    kept = np.repeat(wanted, ends - starts)
    if kept.all():
        return run
    return replace(run, hashes=run.hashes[kept], rows=run.rows.filter(pl.Series(kept)), local=None)


def _newest_of_equal(
    spec: TableSpec, rows: pl.DataFrame, order: npt.NDArray[np.int64], equal: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Among neighbours of equal hash keep each key's last row; different keys of one hash all stay."""
    pairs = np.flatnonzero(equal)
    keys = columns_of(rows, spec.key)
    if same_keys(taken(keys, order[pairs]), taken(keys, order[pairs + 1]), spec.key).all():
        return np.append(~equal, True)
    shared = np.zeros(order.size, dtype=np.bool_)
    shared[1:] |= equal
    shared[:-1] |= equal
    places = np.flatnonzero(shared)
    candidates = rows.select(spec.key)[order[places]].with_columns(pl.Series("__place", places))
    newest = candidates.unique(subset=list(spec.key), keep="last").get_column("__place").to_numpy()
    keep = ~shared
    keep[newest] = True
    return keep


def _positions(
    run: Run,
    hashes: Hashes,
    wanted: pl.DataFrame,
    open_rows: npt.NDArray[np.int64],
    key: tuple[str, ...],
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Where each wanted key stands in a run; neighbours of equal hash are tried one after another."""
    where = np.searchsorted(run.hashes, hashes)
    keys = columns_of(run.rows, key)
    hit = np.zeros(hashes.size, dtype=np.bool_)
    result = np.zeros(hashes.size, dtype=np.int64)
    trying = np.arange(hashes.size)
    offset = 0
    while trying.size:
        place = where[trying] + offset
        inside = place < run.hashes.size
        trying, place = trying[inside], place[inside]
        same_hash = run.hashes[place] == hashes[trying]
        trying, place = trying[same_hash], place[same_hash]
        if not trying.size:
            break
        same = same_keys(taken(keys, place), taken(wanted, open_rows[trying]), key)
        hit[trying[same]] = True
        result[trying[same]] = place[same]
        trying = trying[~same]
        offset += 1
    return hit, result


def _run_of(spec: TableSpec, delta: TableDelta, has_older: bool) -> Run | None:
    pieces, routing = [], delta.routing
    if delta.deletes is not None and delta.deletes.height and has_older:
        routing = None
        missing = [pl.lit(None, kind).alias(name) for name, kind in spec.schema.items() if name not in delta.deletes.columns]
        gone = delta.deletes.with_columns(*missing, pl.lit(True).alias(DELETED))
        pieces.append(gone.select(*spec.schema, DELETED))
    if delta.upserts is not None and delta.upserts.height:
        kept = np.zeros(delta.upserts.height, dtype=np.bool_)
        pieces.append(pl.DataFrame([*(delta.upserts.get_column(name) for name in spec.schema), pl.Series(DELETED, kept)]))
    if not pieces:
        return None
    rows = pl.concat(pieces) if len(pieces) > 1 else pieces[0]
    hashes = spec.hashes(rows, routing)
    order = np.argsort(hashes, kind="stable")
    run = _as_run(spec, hashes[order], taken(rows, order))
    return merge(spec, [run], None, drop_markers=False) if len(pieces) > 1 else run


def _as_run(spec: TableSpec, hashes: Hashes, rows: pl.DataFrame) -> Run:
    highest = rows.get_column(spec.bucket).max() if spec.bucket is not None and rows.height else None
    return Run(hashes, rows, int(highest) if isinstance(highest, int) else None)


def _alive(buckets: pl.Series, low: int) -> npt.NDArray[np.bool_]:
    if not buckets.null_count():
        return np.asarray(buckets.to_numpy() >= low)
    return (buckets >= low).fill_null(False).to_numpy()


def _unexpired(spec: TableSpec, runs: tuple[Run, ...], low: int | None) -> tuple[Run, ...]:
    """The runs that still count; an expired run above an older one stays where it may hide the older one's rows."""
    kept: list[Run] = []
    for run in runs:
        is_expired = low is not None and run.highest_bucket is not None and run.highest_bucket < low
        if not is_expired or (kept and not spec.key_tells_bucket):
            kept.append(run)
    return tuple(kept)


State = Mapping[str, KeyedTable]
