"""A checkpoint leaves its epoch: a task says which runs belong to it, and a thread of its process writes them meanwhile.

What is to be written is a file of the node's local store, and so is what came of it. So it does not matter which process of the
node looks for it, and what a process left that was ended is begun anew by the next one that looks.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from resurge.errors import StorageError
from resurge.runtime.worker.cpu_clock import in_background
from resurge.storage import paths
from resurge.storage.durable import DurableStore
from resurge.storage.node_store import NodeStore
from resurge.storage.runs import SavedCohort, SegmentWriter, leaving_wasteful, write_durably


class Taken(msgspec.Struct, frozen=True):
    """The part of a checkpoint that one task has: the states' runs in the local store, and the durable segment for new ones."""

    url: str
    segment: str
    key_groups: int
    cohorts: list[SavedCohort]


class Written(msgspec.Struct, frozen=True):
    """What came of it: the states with the places of their runs in the durable store; or why it failed."""

    cohorts: list[SavedCohort] = []
    failure: str = ""


def take(store: NodeStore, name: str, taken: Taken) -> None:
    """Begin to write a part of a checkpoint; its runs must stay in the local store until it is written."""
    store.write(paths.local_taken(name), msgspec.json.encode(taken))
    _begin(store, name)


def written(store: NodeStore, name: str, *, waits: bool = False) -> list[SavedCohort] | None:
    """A part of a checkpoint, if it is durable; one that nobody writes any more is begun anew."""
    found = _result(store, name)
    if found is None:
        _begin(store, name)
        found = _waited(store, name) if waits else _result(store, name)
    if found is None:
        return None
    if found.failure:
        # Whoever looks next tries again: the cause may be gone by then.
        store.remove([paths.local_written(name)])
        raise StorageError(found.failure)
    return found.cohorts


def durable_places(store: NodeStore, name: str) -> dict[str, tuple[str, ...]]:
    """The durable blocks of the runs of a part that is logged, by their place in the local store."""
    found = _result(store, name)
    tables = (table for cohort in (found.cohorts if found else ()) for table in cohort.tables.values())
    return {run.local: run.durable for table in tables for run in table.runs if run.local}


def in_a_thread(write: Callable[[], None]) -> None:
    """Let a part be written in the background."""
    in_background(write, "resurge-checkpoint")


start: Callable[[Callable[[], None]], None] = in_a_thread
"""How writing begins; tests that count durable writes have other ways."""


def _begin(store: NodeStore, name: str) -> None:
    """Write a part, unless a thread of any process of this node does."""
    path = store.path(paths.local_taken(name))
    with contextlib.suppress(FileNotFoundError):
        # Held by the one that writes, for as long as it lives.
        lock = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return
        start(lambda: _write(store.folder, path, name, lock))


def _waited(store: NodeStore, name: str) -> Written | None:
    path = store.path(paths.local_taken(name))
    try:
        lock = os.open(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise StorageError(
            f"{path} is gone; expected it to stay until the checkpoint is written: run the same command again"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _result(store, name)
    finally:
        os.close(lock)


def _result(store: NodeStore, name: str) -> Written | None:
    try:
        return msgspec.json.decode(store.path(paths.local_written(name)).read_bytes(), type=Written)
    except FileNotFoundError:
        return None


def _write(folder: Path, path: Path, name: str, lock: int) -> None:
    try:
        result = path.with_name(paths.local_written(name))
        if result.exists():
            return
        try:
            made = _made(folder, path)
        except Exception as error:
            made = Written(failure=str(error) or type(error).__name__)
        # A folder that is gone was its node's or its job's: nobody waits for this.
        with contextlib.suppress(FileNotFoundError):
            temporary = result.with_name(f".{result.name}.tmp")
            temporary.write_bytes(msgspec.json.encode(made))
            temporary.rename(result)
    finally:
        os.close(lock)


def _made(folder: Path, path: Path) -> Written:
    """Write the runs that the durable store lacks."""
    taken = msgspec.json.decode(path.read_bytes(), type=Taken)
    # A store of its own: the other one's mappings are used by tasks at the same time.
    store, durable = NodeStore(folder), DurableStore(taken.url)
    known = leaving_wasteful(taken.cohorts, durable.size_bytes)
    if all(run.durable for cohort in known for table in cohort.tables.values() for run in table.runs):
        return Written(known)
    with durable.creating(taken.segment) as write:
        writer = SegmentWriter(taken.segment, write)
        cohorts = [write_durably(cohort, store.run, writer, taken.key_groups) for cohort in known]
        for piece in writer.finish(b""):
            write(piece)
    return Written(cohorts)
