"""Find out whether a store can create a file only once. The journal's fence rests on it."""

import contextlib
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor

from resurge.errors import StorageError
from resurge.storage import paths
from resurge.storage.durable import DurableStore

WRITERS = 4
ROUNDS = 3


def refuse_unsafe(store: DurableStore) -> None:
    """Refuse a store in which two drivers could both create the same record."""
    name = paths.probe(secrets.token_hex(6))
    try:
        problem = _problem_of_two(store, f"{name}-0")
        # What is in memory is this process's alone, and so are its drivers.
        rounds = 0 if problem or store.protocol == "memory" else ROUNDS
        for number in range(1, rounds + 1):
            problem = problem or _problem_of_many(store, f"{name}-{number}")
    finally:
        for number in range(ROUNDS + 1):
            with contextlib.suppress(OSError):
                store.filesystem.rm_file(store.path(f"{name}-{number}"))
    if problem:
        raise StorageError(
            f"{store.shown_url} cannot keep a job: {problem}, so that two drivers could own one job; expected a store that creates "
            "a file only if it is not there, such as a local folder, NFS, S3 with conditional writes, GCS or Azure: give the job "
            "another checkpoint URL"
        )


def _problem_of_two(store: DurableStore, name: str) -> str | None:
    """One writer after the other."""
    if not store.create_once(name, b"first"):
        return "a file that was just created is said to have been there before"
    if store.create_once(name, b"second") or store.read(name) != b"first":
        return "a file that is there can be created again"
    return None


def _problem_of_many(store: DurableStore, name: str) -> str | None:
    """Several writers at once: a store that looks first and writes then lets more than one win."""
    together = threading.Barrier(WRITERS)

    def write(writer: int) -> bool:
        together.wait()
        return store.create_once(name, b"%d" % writer)

    with ThreadPoolExecutor(WRITERS) as pool:
        won = [writer for writer, created in enumerate(pool.map(write, range(WRITERS))) if created]
    if len(won) != 1 or store.read(name) != b"%d" % won[0]:
        return f"of {WRITERS} writers of one file at the same time, {len(won)} are told that they created it"
    return None
