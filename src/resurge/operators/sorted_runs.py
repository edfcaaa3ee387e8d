"""Sorted runs: immutable rows of a state table, ordered by the hash of the routing key and then by that of the whole key."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from resurge.operators.columns import same_keys, taken
from resurge.operators.hashing import Hashes, hash_rows, key_group_ends, routed_hashes

DELETED = "__deleted"
INDEXED_ROWS = 1 << 18
"""A run of fewer rows is searched without an index: it stays in the processor's cache."""
MOST_STEPS = 32
"""Ranges of at most so many rows are searched row by row: most have one or two."""
FILTERED_ROWS = 1 << 13
"""A run of fewer rows is searched at once."""
SLOTS_PER_ROW = 4


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

    `hashes` may have those of the upserts (`TableSpec.hashes`), where the operator has them already.
    """

    upserts: pl.DataFrame | None = None
    deletes: pl.DataFrame | None = None
    low: int | None = None
    hashes: Hashes | None = field(default=None, compare=False)


class HashIndex:
    """Ordered hashes, and where each of many equal ranges begins among them, so that a search touches few places in memory.

    A binary search in millions of hashes waits for memory at almost every step; with the index it does so two or three times.
    """

    def __init__(self, hashes: Hashes) -> None:
        self.hashes = hashes
        self._group_ends: dict[int, npt.NDArray[np.int64]] = {}

    def group_ends(self, key_groups: int) -> npt.NDArray[np.int64]:
        """Where each key group ends."""
        if key_groups not in self._group_ends:
            self._group_ends[key_groups] = key_group_ends(self.hashes, key_groups)
        return self._group_ends[key_groups]

    @cached_property
    def _ranges(self) -> tuple[np.uint64, npt.NDArray[np.int32], int]:
        """By how many bits a hash is shifted to its range, where each range begins, and how many rows the longest has."""
        span = int(self.hashes[-1]) - int(self.hashes[0])
        shift = (span // self.hashes.size).bit_length()
        # Counting is quicker than to search for each of the ranges.
        counts = np.bincount(((self.hashes - self.hashes[0]) >> np.uint64(shift)).view(np.int64))
        starts = np.cumsum(counts) - counts
        return np.uint64(shift), starts.astype(np.int32), int(counts.max())

    def find(self, hashes: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Which of some hashes are among the ordered ones, and the first place where each of these stands."""
        if self.hashes.size < INDEXED_ROWS:
            places = np.searchsorted(self.hashes, hashes)
            # Behind the last row stands no equal hash.
            found = self.hashes.take(places, mode="clip")
        else:
            shift, starts, longest = self._ranges
            # A hash below the first wraps around to beyond the last, whose range has no equal one.
            places = starts.take(((hashes - self.hashes[0]) >> shift).view(np.int64), mode="clip").astype(np.int64)
            found = self._step_by_step(hashes, places) if longest <= MOST_STEPS else self._halving(hashes, places, longest)
        hits = np.flatnonzero(found == hashes)
        return hits, places[hits]

    def _step_by_step(self, hashes: Hashes, places: npt.NDArray[np.int64]) -> Hashes:
        """Move places on to the first hash that is not smaller, and what stands there; few have to go more than a step."""
        found = self.hashes.take(places)
        waiting = np.flatnonzero(found < hashes)
        while waiting.size:
            place = places[waiting] + 1
            inside = place < self.hashes.size
            waiting, place = waiting[inside], place[inside]
            here = self.hashes.take(place)
            places[waiting], found[waiting] = place, here
            waiting = waiting[here < hashes[waiting]]
        return found

    def _halving(self, hashes: Hashes, places: npt.NDArray[np.int64], longest: int) -> Hashes:
        """The same for ranges of many rows."""
        step = 1 << longest.bit_length()
        while step := step >> 1:
            # All before a place are smaller; what lies behind the hash's own range is not, and is never stepped over.
            places += (self.hashes.take(places + (step - 1), mode="clip") < hashes) * step
        return self.hashes.take(places, mode="clip")

    @cached_property
    def _slots(self) -> tuple[np.uint64, npt.NDArray[np.bool_]]:
        """By how many bits a hash is shifted to its slot, and which slots have any; the last one stands for all hashes outside."""
        span = int(self.hashes[-1]) - int(self.hashes[0])
        shift = np.uint64((span // (self.hashes.size * SLOTS_PER_ROW)).bit_length())
        slots = np.zeros((span >> int(shift)) + 2, dtype=np.bool_)
        slots[((self.hashes - self.hashes[0]) >> shift).view(np.int64)] = True
        return shift, slots

    def may_have(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which hashes may be among the ordered ones: all that are, and few others."""
        if self.hashes.size < FILTERED_ROWS:
            return np.ones(hashes.size, dtype=np.bool_)
        shift, slots = self._slots
        # A hash below the first wraps around to beyond the last; what lies outside finds a slot at either end, which may be marked.
        found: npt.NDArray[np.bool_] = slots.take(((hashes - self.hashes[0]) >> shift).view(np.int64), mode="clip")
        return found


_NO_INDEX = HashIndex(np.empty(0, dtype=np.uint64))


@dataclass(frozen=True)
class Run:
    """Rows ordered by hash, at most one per key; deleted rows are kept as markers while older runs may have the key.

    `local` is its place in the node's store. `durable` are the blocks of the durable store that have its rows. Both may have rows
    of other key groups too: a run that was cut says which of them it has (`groups`), so that nothing is written when it is cut.
    """

    hashes: Hashes
    rows: pl.DataFrame
    highest_bucket: int | None = None
    local: str | None = field(default=None, compare=False)
    durable: tuple[str, ...] = field(default=(), compare=False)
    groups: frozenset[int] | None = field(default=None, compare=False)
    index: HashIndex = field(default=_NO_INDEX, compare=False, repr=False)

    def __post_init__(self) -> None:
        # A run that is replaced by one with the same rows, but another place in a store, keeps its index.
        if self.index.hashes is not self.hashes:
            object.__setattr__(self, "index", HashIndex(self.hashes))

    @property
    def height(self) -> int:
        """Rows in the run, markers included."""
        return self.rows.height

    @cached_property
    def has_markers(self) -> bool:
        """Whether any row is deleted; most tables never delete a row, and need not look at each."""
        return bool(self.rows.get_column(DELETED).any())


@dataclass(frozen=True)
class TableChange:
    """What an epoch adds to a table: a run that is merged with no other, if rows changed, and the bucket below which all are gone."""

    run: Run | None = None
    low: int | None = None


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
        keep &= alive(rows.get_column(spec.bucket), low)[order]
    if drop_markers and any(run.has_markers for run in runs):
        keep &= ~rows.get_column(DELETED).to_numpy()[order]
    kept = order[keep]
    return _as_run(spec, hashes[keep], taken(rows, kept))


def interleaved(left: Run, right: Run) -> Run:
    """One run of two that have different key groups."""
    # It counts as new for the durable store: a block of either may have older rows of the other's key groups.
    hashes = np.concatenate([left.hashes, right.hashes])
    order = np.argsort(hashes, kind="stable")
    buckets = [run.highest_bucket for run in (left, right) if run.highest_bucket is not None]
    return Run(hashes[order], pl.concat([left.rows, right.rows])[order], max(buckets, default=None))


def within(run: Run, groups: Sequence[int], key_groups: int) -> Run:
    """The rows of a run that are of these key groups."""
    counts = np.diff(run.index.group_ends(key_groups), prepend=0)
    wanted = np.zeros(key_groups, dtype=np.bool_)
    wanted[np.asarray(groups, dtype=np.int64)] = True
    if not counts[~wanted].any():
        return run
    mine = frozenset(groups) if run.groups is None else run.groups.intersection(groups)
    kept = np.repeat(wanted, counts)
    places = np.flatnonzero(kept)
    if places.size and places[-1] - places[0] + 1 == places.size:
        # Neighbours are cut without a copy.
        first, size = int(places[0]), int(places.size)
        return replace(run, hashes=run.hashes[first : first + size], rows=run.rows.slice(first, size), groups=mine)
    return replace(run, hashes=run.hashes[kept], rows=run.rows.filter(pl.Series(kept)), groups=mine)


def _newest_of_equal(
    spec: TableSpec, rows: pl.DataFrame, order: npt.NDArray[np.int64], equal: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Among neighbours of equal hash keep each key's last row; different keys of one hash all stay."""
    pairs = np.flatnonzero(equal)
    if same_keys(rows, order[pairs], rows, order[pairs + 1], spec.key).all():
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


def places_in(
    run: Run,
    hashes: Hashes,
    wanted: pl.DataFrame,
    rows: npt.NDArray[np.int64],
    key: tuple[str, ...],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Which of some wanted rows, whose hashes are given, have their key in a run, and where it stands there."""
    trying, where = run.index.find(hashes)
    same = same_keys(run.rows, where, wanted, rows[trying], key)
    if same.all():
        return trying, where
    hits, places = [trying[:0]], [where[:0]]
    while trying.size:
        hits.append(trying[same])
        places.append(where[same])
        # Another key of the same hash: neighbours of equal hash are tried one after another.
        trying, where = trying[~same], where[~same] + 1
        inside = where < run.hashes.size
        trying, where = trying[inside], where[inside]
        equal = run.hashes[where] == hashes[trying]
        trying, where = trying[equal], where[equal]
        same = same_keys(run.rows, where, wanted, rows[trying], key)
    return np.concatenate(hits), np.concatenate(places)


def run_of(spec: TableSpec, delta: TableDelta, has_older: bool) -> Run | None:
    """The run of a delta, or None if it changes no row; deletions count only where an older run may have the key."""
    pieces, hashes = [], delta.hashes
    if delta.deletes is not None and delta.deletes.height and has_older:
        hashes = None
        missing = [pl.lit(None, kind).alias(name) for name, kind in spec.schema.items() if name not in delta.deletes.columns]
        gone = delta.deletes.with_columns(*missing, pl.lit(True).alias(DELETED))
        pieces.append(gone.select(*spec.schema, DELETED))
    if delta.upserts is not None and delta.upserts.height:
        kept = np.zeros(delta.upserts.height, dtype=np.bool_)
        pieces.append(pl.DataFrame([*(delta.upserts.get_column(name) for name in spec.schema), pl.Series(DELETED, kept)]))
    if not pieces:
        return None
    rows = pl.concat(pieces) if len(pieces) > 1 else pieces[0]
    if hashes is None:
        hashes = spec.hashes(rows)
    if not is_sorted(hashes):
        order = np.argsort(hashes, kind="stable")
        hashes, rows = hashes[order], taken(rows, order)
    run = _as_run(spec, hashes, rows)
    return merge(spec, [run], None, drop_markers=False) if len(pieces) > 1 else run


def is_sorted(hashes: Hashes) -> bool:
    """Whether hashes are in order already: to look is far quicker than to sort."""
    return bool((hashes[1:] >= hashes[:-1]).all())


def _as_run(spec: TableSpec, hashes: Hashes, rows: pl.DataFrame) -> Run:
    highest = rows.get_column(spec.bucket).max() if spec.bucket is not None and rows.height else None
    return Run(hashes, rows, int(highest) if isinstance(highest, int) else None)


def alive(buckets: pl.Series, low: int) -> npt.NDArray[np.bool_]:
    """Which rows are in a bucket that is not gone."""
    if not buckets.null_count():
        return np.asarray(buckets.to_numpy() >= low)
    return (buckets >= low).fill_null(False).to_numpy()


def unexpired(spec: TableSpec, runs: tuple[Run, ...], low: int | None) -> tuple[Run, ...]:
    """The runs that still count; an expired run above an older one stays where it may hide the older one's rows."""
    kept: list[Run] = []
    for run in runs:
        is_expired = low is not None and run.highest_bucket is not None and run.highest_bucket < low
        if not is_expired or (kept and not spec.key_tells_bucket):
            kept.append(run)
    return tuple(kept)
