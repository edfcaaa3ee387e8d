"""State versions as files: runs packed into segments, and the manifest that says which runs a version consists of.

A run of the node's store is one piece. A run of the durable store is cut into blocks at key-group boundaries, so that one key
group is restored without reading the others.
"""

import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from resurge.errors import CorruptFileError
from resurge.operators.hashing import key_group_ends
from resurge.operators.sorted_runs import Run, TableChange, TableSpec, within
from resurge.operators.state import KeyedTable, State, joined, joined_changes
from resurge.storage.frames import from_bytes, to_bytes

HASH = "__hash"
BLOCK_BYTES = 1 << 18
LEAST_CUT_BYTES = 4 << 20
"""A run of the local store that is smaller is one block, as it is: to cut it would cost more than to read all of it."""
LEAST_UNUSED_BYTES = 1 << 20
"""What a segment must have that nobody uses before it is rewritten: smaller ones are not worth it."""
_FOOTER_BYTES = 16


class RunRef(msgspec.Struct, frozen=True):
    """Where a run, or a block of one, lies; a block also says which key groups it may have: `first` to `last`."""

    segment: str
    offset: int
    length: int
    checksum: int
    first: int = 0
    last: int = 0

    def encode(self) -> str:
        """One string, as a run carries it."""
        return f"{self.segment}|{self.offset}|{self.length}|{self.checksum}|{self.first}|{self.last}"

    @classmethod
    def decode(cls, text: str) -> "RunRef":
        """The reverse of `encode`."""
        segment, *numbers = text.split("|")
        return cls(segment, *map(int, numbers))


class SavedRun(msgspec.Struct, frozen=True):
    """A run of a saved table: where it lies locally, which durable blocks have its rows, and the newest bucket it holds.

    With `groups`, only the rows of these key groups are of the run, whatever else lies there.
    """

    local: str | None
    durable: tuple[str, ...]
    rows: int
    highest_bucket: int | None
    groups: tuple[int, ...] | None = None


class SavedTable(msgspec.Struct, frozen=True):
    """A table of a saved state."""

    low: int | None
    runs: list[SavedRun]


SavedState = dict[str, SavedTable]


class SavedChange(msgspec.Struct, frozen=True):
    """What one epoch changed of some key groups' tables: at most one run for each, which is merged with no other."""

    epoch: int
    tables: SavedState


class SavedCohort(msgspec.Struct, frozen=True):
    """The state of some key groups of one operator, which were saved together, and the changes that are kept beside it."""

    operator: str
    key_groups: list[int]
    tables: SavedState
    shadow: bool = False
    kept: list[SavedChange] = []

    def local_segments(self) -> set[str]:
        """The files of the node's store that it needs."""
        states = (self.tables, *(change.tables for change in self.kept))
        tables = (table for tables in states for table in tables.values())
        return {run.local.split("|", 1)[0] for table in tables for run in table.runs if run.local}


class EpochChange(NamedTuple):
    """What one epoch changed of some key groups' tables."""

    epoch: int
    tables: Mapping[str, TableChange]


class SegmentWriter:
    """Collects runs into one file; a run's place is known as soon as it is added.

    A file that is written piece by piece takes each as soon as it is made, so that no copy of the state stays in memory.
    """

    def __init__(self, name: str, write: Callable[[bytes | memoryview], object] | None = None) -> None:
        self.name = name
        self.pieces: list[bytes | memoryview] = []
        self._write = write or self.pieces.append
        self.size = 0
        self._added: dict[int, tuple[Run, str]] = {}
        self._saved: dict[RunRef, tuple[str, ...]] = {}

    def add(self, run: Run) -> str:
        """Add a run in one piece, or find it if it was added before; returns its place."""
        if id(run) not in self._added:
            self._added[id(run)] = run, self._add(run.rows, run, slice(0, run.height), (0, 0))
        return self._added[id(run)][1]

    def add_blocks(self, run: Run, key_groups: int) -> tuple[str, ...]:
        """Add a run in blocks of whole key groups; returns their places."""
        ends = key_group_ends(run.hashes, key_groups)
        places, start, first = [], 0, 0
        for last, end in _block_ends(ends, int(run.rows.estimated_size())):
            places.append(self._add(run.rows.slice(start, end - start), run, slice(start, end), (first, last)))
            start, first = end, last + 1
        return tuple(places)

    def add_saved(self, content: memoryview, reference: RunRef, key_groups: int) -> tuple[str, ...]:
        """Add a run of the local store in blocks; one that is small is a block as it is, with the checksum that it has."""
        if reference not in self._saved:
            is_large = reference.length >= LEAST_CUT_BYTES
            self._saved[reference] = (
                self.add_blocks(load_run(content, reference, verify=False), key_groups)
                if is_large
                else (self._add_content(content, reference.checksum, (0, key_groups - 1)),)
            )
        return self._saved[reference]

    def _add(self, rows: pl.DataFrame, run: Run, part: slice, groups: tuple[int, int]) -> str:
        content = to_bytes(pl.DataFrame([*rows.get_columns(), pl.Series(HASH, run.hashes[part])]))
        return self._add_content(content, zlib.crc32(content), groups)

    def _add_content(self, content: bytes | memoryview, checksum: int, groups: tuple[int, int]) -> str:
        reference = RunRef(self.name, self.size, len(content), checksum, *groups)
        padding = -len(content) % 64
        self._write(content)
        self._write(bytes(padding))
        self.size += len(content) + padding
        return reference.encode()

    def finish(self, manifest: bytes) -> list[bytes | memoryview]:
        """The file, in pieces: runs, manifest, and a footer that says where the manifest begins."""
        footer = self.size.to_bytes(8, "little") + zlib.crc32(manifest).to_bytes(8, "little")
        return [*self.pieces, manifest, footer]


def _block_ends(ends: npt.NDArray[np.int64], size_bytes: int) -> list[tuple[int, int]]:
    """The last key group and the last row of each block: whole key groups, and about as large as a block should be."""
    rows, last = int(ends[-1]), len(ends) - 1
    blocks = min(len(ends), max(1, size_bytes // BLOCK_BYTES))
    found: list[tuple[int, int]] = []
    for block in range(1, blocks):
        group = int(np.searchsorted(ends, rows * block // blocks))
        if group < last and (not found or group > found[-1][0]):
            found.append((group, int(ends[group])))
    return [*found, (last, rows)]


def manifest_of(content: memoryview, name: str) -> bytes:
    """The manifest at the end of a segment, checked."""
    if len(content) < _FOOTER_BYTES:
        raise CorruptFileError(f"{name} has {len(content)} bytes; expected a footer of {_FOOTER_BYTES}: the file is torn")
    start = int.from_bytes(content[-16:-8], "little")
    checksum = int.from_bytes(content[-8:], "little")
    manifest = bytes(content[start:-_FOOTER_BYTES]) if start <= len(content) - _FOOTER_BYTES else b""
    if zlib.crc32(manifest) != checksum:
        raise CorruptFileError(f"{name}: its manifest does not fit its checksum: the file is torn or was altered")
    return manifest


def load_run(content: bytes | memoryview, reference: RunRef, *, verify: bool) -> Run:
    """A run, or a block of one, from the bytes at its place."""
    if len(content) != reference.length or (verify and zlib.crc32(content) != reference.checksum):
        raise CorruptFileError(
            f"{reference.segment}: the run at byte {reference.offset} does not fit its checksum: the file is torn or was altered"
        )
    rows = from_bytes(content)
    hashes = rows.get_column(HASH).to_numpy()
    return Run(np.asarray(hashes, dtype=np.uint64), rows.drop(HASH))


def save_locally(state: State, writer: SegmentWriter) -> tuple[State, SavedState]:
    """Write the runs that are not in the local store yet; the state with their places, and its manifest."""
    tables = {name: replace(table, runs=tuple(_placed(run, writer) for run in table.runs)) for name, table in state.items()}
    return tables, {name: SavedTable(table.low, [_saved(run) for run in table.runs]) for name, table in tables.items()}


def wasteful_segments(states: Iterable[State], sizes_bytes: Mapping[str, int]) -> frozenset[str]:
    """The segments of which these states use less than half, where that is worth writing what they use once more."""
    used_bytes: dict[str, int] = {}
    runs = {run.local: run for state in states for table in state.values() for run in table.runs if run.local}
    for place, run in runs.items():
        reference = RunRef.decode(place)
        # Of a run that was cut, what is left.
        size = reference.length if run.groups is None else min(reference.length, int(run.rows.estimated_size()) + 8 * run.height)
        used_bytes[reference.segment] = used_bytes.get(reference.segment, 0) + size
    return frozenset(
        segment for segment, used in used_bytes.items() if sizes_bytes.get(segment, 0) - used > max(used, LEAST_UNUSED_BYTES)
    )


def placed_anew(state: State, segments: Collection[str]) -> State:
    """The state without its places in these segments, so that it is written once more and they can go."""

    def moved(run: Run) -> Run:
        return replace(run, local=None) if run.local and RunRef.decode(run.local).segment in segments else run

    return {name: replace(table, runs=tuple(moved(run) for run in table.runs)) for name, table in state.items()}


def save_change(change: EpochChange, writer: SegmentWriter) -> tuple[EpochChange, SavedChange]:
    """Write what is not in the local store yet; the change with its places, and its manifest."""
    tables = {
        name: replace(table, run=None if table.run is None else _placed(table.run, writer))
        for name, table in change.tables.items()
    }
    saved = {name: SavedTable(table.low, [] if table.run is None else [_saved(table.run)]) for name, table in tables.items()}
    return EpochChange(change.epoch, tables), SavedChange(change.epoch, saved)


def _placed(run: Run, writer: SegmentWriter) -> Run:
    return run if run.local else replace(run, local=writer.add(run))


def _saved(run: Run) -> SavedRun:
    groups = None if run.groups is None else tuple(sorted(run.groups))
    return SavedRun(run.local, run.durable, run.height, run.highest_bucket, groups)


def write_durably(
    cohort: SavedCohort, read: Callable[[RunRef], memoryview], writer: SegmentWriter, key_groups: int
) -> SavedCohort:
    """Add the runs of a saved cohort that are not in the durable store yet; the cohort with their places there."""

    def written(run: SavedRun) -> SavedRun:
        if run.durable:
            return run
        if run.local is None:
            raise CorruptFileError(f"a run of {cohort.operator!r} has no place in the local store")
        reference = RunRef.decode(run.local)
        return msgspec.structs.replace(run, durable=writer.add_saved(read(reference), reference, key_groups))

    tables = {name: SavedTable(table.low, [written(run) for run in table.runs]) for name, table in cohort.tables.items()}
    return SavedCohort(cohort.operator, cohort.key_groups, tables)


def leaving_wasteful(cohorts: Sequence[SavedCohort], size_bytes: Callable[[str], int]) -> list[SavedCohort]:
    """The cohorts without their places in durable segments of which they use less than half, so that those can go."""
    runs = (run for cohort in cohorts for table in cohort.tables.values() for run in table.runs)
    used_bytes: dict[str, int] = {}
    for reference in map(RunRef.decode, {place for run in runs for place in run.durable}):
        used_bytes[reference.segment] = used_bytes.get(reference.segment, 0) + reference.length
    left = {segment for segment, used in used_bytes.items() if size_bytes(segment) - used > max(used, LEAST_UNUSED_BYTES)}

    def kept(run: SavedRun) -> SavedRun:
        is_left = run.local and any(RunRef.decode(place).segment in left for place in run.durable)
        return msgspec.structs.replace(run, durable=()) if is_left else run

    def tables(state: SavedState) -> SavedState:
        return {name: SavedTable(table.low, list(map(kept, table.runs))) for name, table in state.items()}

    return [msgspec.structs.replace(cohort, tables=tables(cohort.tables)) for cohort in cohorts] if left else list(cohorts)


def known_durable(state: State, places: Mapping[str, tuple[str, ...]]) -> State:
    """The state with the durable places of its runs, as far as they are known by their local ones."""

    def known(run: Run) -> Run:
        durable = places.get(run.local) if run.local and not run.durable else None
        return run if durable is None else replace(run, durable=durable)

    return {name: replace(table, runs=tuple(map(known, table.runs))) for name, table in state.items()}


def durable_only(tables: SavedState) -> SavedState:
    """The tables as a checkpoint names them."""
    return {
        name: SavedTable(table.low, [SavedRun(None, run.durable, run.rows, run.highest_bucket, run.groups) for run in table.runs])
        for name, table in tables.items()
    }


@dataclass(frozen=True)
class Loader:
    """Builds the state of some key groups from what was saved; local runs that are `known` are not read again."""

    specs: Mapping[str, TableSpec]
    key_groups: int
    read: Callable[[RunRef], bytes | memoryview]
    known: Mapping[str, Run] = field(default_factory=dict)
    verify: bool = False

    def local(self, cohorts: Iterable[SavedCohort], groups: Collection[int]) -> State:
        """From the node's store."""
        return self._joined([self._cohort(cohort, groups, self._local_run) for cohort in cohorts])

    def durable(self, cohorts: Iterable[SavedCohort], groups: Collection[int]) -> State:
        """From the durable store: only the blocks that have a wanted key group."""
        wanted = frozenset(groups)

        def load(name: str, saved: SavedRun) -> Run | None:
            return self._durable_run(name, saved, wanted)

        return self._joined([self._cohort(cohort, groups, load) for cohort in cohorts])

    def changes(self, cohorts: Sequence[SavedCohort], groups: Collection[int], after: int) -> tuple[EpochChange, ...]:
        """From the node's store: what the epochs after this one changed, as far as all cohorts kept it."""
        kept = [{change.epoch: change.tables for change in cohort.kept if change.epoch > after} for cohort in cohorts]
        epochs = frozenset(kept[0]).intersection(*kept[1:]) if kept else frozenset()
        found = []
        for epoch in sorted(epochs):
            states = [
                self._cohort(SavedCohort(cohort.operator, cohort.key_groups, changes[epoch]), groups, self._local_run)
                for cohort, changes in zip(cohorts, kept, strict=True)
            ]
            found.append(EpochChange(epoch, {name: _as_change([state[name] for state in states]) for name in self.specs}))
        return tuple(found)

    def _joined(self, states: list[State]) -> State:
        if not states:
            return {name: KeyedTable(spec) for name, spec in self.specs.items()}
        return {name: joined([state[name] for state in states]) if len(states) > 1 else states[0][name] for name in self.specs}

    def _cohort(self, cohort: SavedCohort, groups: Collection[int], load: Callable[[str, SavedRun], Run | None]) -> State:
        mine = sorted(set(cohort.key_groups).intersection(groups))
        tables: dict[str, KeyedTable] = {}
        for name, spec in self.specs.items():
            saved = cohort.tables.get(name)
            loaded = () if saved is None else (load(name, run) for run in saved.runs)
            runs = tuple(run for run in loaded if run is not None)
            table = KeyedTable(spec, runs, None if saved is None else saved.low)
            tables[name] = table.within(mine, self.key_groups)
        return tables

    def _local_run(self, name: str, saved: SavedRun) -> Run:
        if saved.local is None:
            raise CorruptFileError(f"a run of table {name!r} has no place in the local store")
        found = self.known.get(saved.local)
        if found is None:
            reference = RunRef.decode(saved.local)
            found = load_run(self.read(reference), reference, verify=self.verify)
        whole = replace(found, highest_bucket=saved.highest_bucket, local=saved.local, durable=saved.durable)
        return whole if saved.groups is None else within(whole, saved.groups, self.key_groups)

    def _durable_run(self, name: str, saved: SavedRun, wanted: frozenset[int]) -> Run | None:
        if not saved.durable:
            raise CorruptFileError(f"a run of table {name!r} has no place in the durable store")
        wanted = wanted if saved.groups is None else wanted.intersection(saved.groups)
        places = [(place, RunRef.decode(place)) for place in saved.durable]
        mine = [(place, ref) for place, ref in places if not wanted.isdisjoint(range(ref.first, ref.last + 1))]
        if not mine:
            return None
        blocks = [load_run(self.read(reference), reference, verify=True) for _, reference in mine]
        hashes = np.concatenate([block.hashes for block in blocks])
        rows = pl.concat([block.rows for block in blocks], rechunk=True)
        whole = Run(hashes, rows, saved.highest_bucket, durable=tuple(place for place, _ in mine))
        return whole if saved.groups is None else within(whole, saved.groups, self.key_groups)


def _as_change(tables: Sequence[KeyedTable]) -> TableChange:
    return joined_changes([TableChange(table.runs[0] if table.runs else None, table.low) for table in tables])
