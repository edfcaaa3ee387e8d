"""State versions as files: runs packed into segments, and the manifest that says which runs a version consists of."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec
import numpy as np
import polars as pl

from resurge.errors import CorruptFileError
from resurge.operators.state import KeyedTable, Run, State, TableSpec
from resurge.runtime.storage.frames import from_bytes, to_bytes

HASH = "__hash"
_FOOTER_BYTES = 16


class RunRef(msgspec.Struct, frozen=True):
    """Where a run lies: segment, offset, length, checksum; `durable` is its place in the durable store, if it has one."""

    segment: str
    offset: int
    length: int
    checksum: int
    highest_bucket: int | None = None

    def encode(self) -> str:
        """One string, as a run carries it."""
        return f"{self.segment}|{self.offset}|{self.length}|{self.checksum}"

    @classmethod
    def decode(cls, text: str, highest_bucket: int | None) -> "RunRef":
        """The reverse of `encode`."""
        segment, offset, length, checksum = text.split("|")
        return cls(segment, int(offset), int(length), int(checksum), highest_bucket)


class SavedRun(msgspec.Struct, frozen=True):
    """A run of a saved table: where it lies locally and durably, and the newest bucket it holds."""

    local: str | None
    durable: str | None
    rows: int
    highest_bucket: int | None


class SavedTable(msgspec.Struct, frozen=True):
    """A table of a partition's version."""

    low: int | None
    runs: list[SavedRun]


SavedState = dict[str, SavedTable]


class SegmentWriter:
    """Collects runs into one file; a run's place is known as soon as it is added."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pieces: list[bytes] = []
        self.size = 0

    def add(self, run: Run) -> str:
        """Add a run; returns its place."""
        content = to_bytes(run.rows.with_columns(pl.Series(HASH, run.hashes, dtype=pl.UInt64)))
        reference = RunRef(self.name, self.size, len(content), zlib.crc32(content))
        padding = -len(content) % 64
        self.pieces += [content, bytes(padding)]
        self.size += len(content) + padding
        return reference.encode()

    def finish(self, manifest: bytes) -> bytes:
        """The file: runs, manifest, and a footer that says where the manifest begins."""
        footer = self.size.to_bytes(8, "little") + zlib.crc32(manifest).to_bytes(8, "little")
        return b"".join([*self.pieces, manifest, footer])


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


def load_run(content: bytes | memoryview, reference: RunRef, spec: TableSpec, *, verify: bool) -> Run:
    """A run from the bytes at its place."""
    if len(content) != reference.length or (verify and zlib.crc32(content) != reference.checksum):
        raise CorruptFileError(
            f"{reference.segment}: the run at byte {reference.offset} does not fit its checksum: the file is torn or was altered"
        )
    rows = from_bytes(content)
    hashes = rows.get_column(HASH).to_numpy()
    return Run(np.asarray(hashes, dtype=np.uint64), rows.drop(HASH), reference.highest_bucket)


def save_locally(state: State, writer: SegmentWriter) -> tuple[State, SavedState]:
    """Write the runs that are not in the local store yet; the state with their places, and its manifest."""
    tables: dict[str, KeyedTable] = {}
    saved: SavedState = {}
    for name, table in state.items():
        runs = tuple(run if run.local else replace(run, local=writer.add(run)) for run in table.runs)
        tables[name] = replace(table, runs=runs)
        saved[name] = SavedTable(table.low, [SavedRun(r.local, r.durable, r.height, r.highest_bucket) for r in runs])
    return tables, saved


def save_durably(state: State, writer: SegmentWriter) -> State:
    """Add the runs that are not in the durable store yet; the state with their places there."""
    return {
        name: replace(table, runs=tuple(run if run.durable else replace(run, durable=writer.add(run)) for run in table.runs))
        for name, table in state.items()
    }


def load_state(
    saved: SavedState,
    specs: Mapping[str, TableSpec],
    read: Callable[[RunRef], bytes | memoryview],
    *,
    durable: bool,
    known: Mapping[str, Run] | None = None,
) -> State:
    """The state that a manifest describes, from the local or the durable store; local runs that are `known` are not read again."""
    tables: dict[str, KeyedTable] = {}
    for name, spec in specs.items():
        table = saved.get(name)
        if table is None:
            tables[name] = KeyedTable(spec)
            continue
        runs = []
        for kept in table.runs:
            place = kept.durable if durable else kept.local
            if place is None:
                raise CorruptFileError(f"a run of table {name!r} has no place in the {'durable' if durable else 'local'} store")
            found = known.get(place) if known and not durable else None
            if found is not None:
                runs.append(replace(found, durable=kept.durable))
                continue
            reference = RunRef.decode(place, kept.highest_bucket)
            run = load_run(read(reference), reference, spec, verify=durable)
            runs.append(replace(run, local=None if durable else kept.local, durable=kept.durable))
        tables[name] = KeyedTable(spec, tuple(runs), table.low)
    return tables
