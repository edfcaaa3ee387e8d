"""A part of a checkpoint is written beside the epochs: by one process at a time, and by another one if that was ended."""

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from resurge.errors import StorageError
from resurge.operators.sorted_runs import Run, TableSpec
from resurge.operators.state import KeyedTable
from resurge.runtime.worker import checkpoint_writes
from resurge.storage import paths
from resurge.storage.durable import DurableStore
from resurge.storage.node_store import NodeStore
from resurge.storage.runs import (
    LEAST_CUT_BYTES,
    LEAST_UNUSED_BYTES,
    Loader,
    RunRef,
    SavedCohort,
    SavedTable,
    SegmentWriter,
    save_locally,
)

GROUPS = 8
SPEC = TableSpec({"key": pl.Int64(), "n": pl.Int64()}, ("key",))
NAME, SEGMENT = "000000000003-g1a1-1-00000.runs", "checkpoints/data/000000000003-g1a1-1-00000.runs"


def run_of(rows: int, first: int = 0) -> Run:
    """A run of so many keys."""
    frame = pl.DataFrame({"key": np.arange(first, first + rows), "n": np.arange(rows)})
    hashes = np.sort(np.random.default_rng(rows).integers(0, 2**63, rows).astype(np.uint64) * np.uint64(2))
    return Run(hashes, frame.with_columns(pl.lit(False).alias("__deleted")))


def saved(store: NodeStore, *runs: Run) -> SavedCohort:
    """A state of these runs, in the local store."""
    writer = SegmentWriter(NAME)
    _, tables = save_locally({"counts": KeyedTable(SPEC, runs)}, writer)
    store.write(NAME, writer.finish(b"[]"))
    return SavedCohort("counts", list(range(GROUPS)), tables)


def taken(folder: Path, cohort: SavedCohort) -> checkpoint_writes.Taken:
    """All of a state belongs to a checkpoint."""
    return checkpoint_writes.Taken(str(folder / "job"), SEGMENT, GROUPS, [cohort])


@pytest.fixture
def store(tmp_path: Path) -> NodeStore:
    """The local store of a node."""
    return NodeStore(tmp_path / "local" / "n1")


def test_what_is_written_is_the_state_and_the_next_checkpoint_writes_only_what_is_new(store: NodeStore, tmp_path: Path) -> None:
    """Small runs are copied as they are, large ones are cut into blocks; a run that is durable is not written again."""
    small, large = run_of(100), run_of(LEAST_CUT_BYTES // 16, first=1000)
    cohort = saved(store, large, small)
    checkpoint_writes.take(store, NAME, taken(tmp_path, cohort))
    [written] = checkpoint_writes.written(store, NAME, waits=True) or []
    durable = DurableStore(str(tmp_path / "job"))

    def read(reference: RunRef) -> bytes:
        return durable.read_range(reference.segment, reference.offset, reference.length)

    found = Loader({"counts": SPEC}, GROUPS, read).durable([written], range(GROUPS))["counts"]
    assert [run.rows.to_dicts() for run in found.runs] == [large.rows.to_dicts(), small.rows.to_dicts()]
    blocks = [len(run.durable) for run in written.tables["counts"].runs]
    assert blocks[0] > 1 and blocks[1] == 1
    places = checkpoint_writes.durable_places(store, NAME)
    assert places == {run.local: run.durable for run in written.tables["counts"].runs}
    again = checkpoint_writes.Taken(str(tmp_path / "job"), f"{SEGMENT}-2", GROUPS, [written])
    checkpoint_writes.take(store, "later", again)
    assert checkpoint_writes.written(store, "later", waits=True) == [written]
    assert durable.names(paths.CHECKPOINT_DATA) == [SEGMENT]


def test_a_durable_segment_that_is_less_than_half_used_is_left(store: NodeStore, tmp_path: Path) -> None:
    """What is still used of it is written once more, so that the durable store holds at most twice what is used."""
    small, large = run_of(100), run_of(LEAST_UNUSED_BYTES // 8, first=1000)
    checkpoint_writes.take(store, NAME, taken(tmp_path, saved(store, large, small)))
    [first] = checkpoint_writes.written(store, NAME, waits=True) or []
    _, kept = first.tables["counts"].runs
    left = SavedCohort("counts", first.key_groups, {"counts": SavedTable(None, [kept])})
    checkpoint_writes.take(store, "later", checkpoint_writes.Taken(str(tmp_path / "job"), f"{SEGMENT}-2", GROUPS, [left]))
    [later] = checkpoint_writes.written(store, "later", waits=True) or []
    [moved] = later.tables["counts"].runs
    assert {RunRef.decode(place).segment for place in kept.durable} == {SEGMENT}
    assert {RunRef.decode(place).segment for place in moved.durable} == {f"{SEGMENT}-2"}
    checkpoint_writes.take(store, "last", checkpoint_writes.Taken(str(tmp_path / "job"), f"{SEGMENT}-3", GROUPS, [later]))
    assert checkpoint_writes.written(store, "last", waits=True) == [later]


def test_nobody_else_writes_while_one_does_and_the_next_that_looks_goes_on_after_its_end(
    store: NodeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock, which ends with its process, says whether somebody writes."""
    begun: list[Callable[[], None]] = []
    monkeypatch.setattr(checkpoint_writes, "start", begun.append)
    checkpoint_writes.take(store, NAME, taken(tmp_path, saved(store, run_of(10))))
    assert checkpoint_writes.written(store, NAME) is None and len(begun) == 1
    [lock] = [cell.cell_contents for cell in begun[0].__closure__ or () if isinstance(cell.cell_contents, int)]
    os.close(lock)
    assert checkpoint_writes.written(store, NAME) is None and len(begun) == 2
    begun[1]()
    assert checkpoint_writes.written(store, NAME) is not None


def test_whoever_waits_gets_what_another_thread_writes(store: NodeStore, tmp_path: Path) -> None:
    """The final checkpoint of a job is durable when its job ends."""
    store.write(paths.local_taken(NAME), b"{}")
    lock = os.open(store.path(paths.local_taken(NAME)), os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(checkpoint_writes.written(store, NAME, waits=True)))
    waiting.start()
    store.write(paths.local_written(NAME), b'{"cohorts":[]}')
    os.close(lock)
    waiting.join(timeout=30)
    assert found == [[]]


def test_a_failure_is_told_once_and_then_tried_again(store: NodeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes room and goes on finds the checkpoint written."""
    monkeypatch.setattr(checkpoint_writes, "start", lambda write: write())
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "checkpoints").write_text("in the way")
    checkpoint_writes.take(store, NAME, taken(tmp_path, saved(store, run_of(10))))
    with pytest.raises(StorageError, match="cannot write"):
        checkpoint_writes.written(store, NAME)
    (tmp_path / "job" / "checkpoints").unlink()
    assert checkpoint_writes.written(store, NAME) is not None


def test_a_thread_that_ends_after_its_job_leaves_nothing_behind(
    store: NodeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The local store of a job that is gone is not made again."""
    begun: list[Callable[[], None]] = []
    monkeypatch.setattr(checkpoint_writes, "start", begun.append)
    checkpoint_writes.take(store, NAME, taken(tmp_path, saved(store, run_of(10))))
    for path in store.folder.iterdir():
        path.unlink()
    store.folder.rmdir()
    begun[0]()
    assert not store.folder.exists()
