"""The durable store at a checkpoint URL: what exactly-once needs of it, tried out with a small file."""

import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from resurge.doctor.findings import Finding, fine, note, problem
from resurge.doctor.machine import LEAST_FREE_BYTES
from resurge.errors import ResurgeError
from resurge.storage.durable import DurableStore
from resurge.telemetry.wording import bytes_in_words, seconds_in_words

FOLDER = "doctor"
CONTENT = b"resurge doctor"
MOST_SKEW_S = 2.0
SLOW_WRITE_S = 1.0


def store_findings(url: str) -> Iterator[Finding]:
    """Write, create once, read, list, delete, clock, space; nothing is left behind."""
    try:
        store = DurableStore(url)
    except ResurgeError as error:
        yield problem(
            "store", str(error), "give a folder, or an fsspec URL whose package is installed (s3fs for s3://, and so on)"
        )
        return
    name = f"{FOLDER}/{secrets.token_hex(8)}"
    began_s = time.monotonic()
    try:
        created = store.create(name, CONTENT)
    except (ResurgeError, OSError) as error:
        yield problem("store, write", str(error), "give the driver and the executors write access to the checkpoint URL")
        return
    try:
        yield _write_finding(url, created, time.monotonic() - began_s)
        yield _create_once_finding(store, name)
        yield _read_finding(store, name)
        yield _clock_finding(store, name)
    finally:
        store.remove(name)
    yield _delete_finding(store, name)
    if store.is_local:
        yield from _local_findings(store)


def _write_finding(url: str, created: bool, took_s: float) -> Finding:
    if not created:
        return problem(
            "store, write", f"a new file at {url} was said to exist", "use another store: this one does not tell the truth"
        )
    words = f"a file at {url} takes {seconds_in_words(took_s)}"
    if took_s > SLOW_WRITE_S:
        return note(
            "store, write", words, "every epoch appends two journal records: use a store that is nearer, or longer intervals"
        )
    return fine("store, write", words)


def _create_once_finding(store: DurableStore, name: str) -> Finding:
    if store.create(name, b"again"):
        return problem(
            "store, create once",
            "a file that exists was created again: two drivers could both write the next journal record",
            "use a store with conditional writes; without, never start a second driver of a job",
        )
    return fine("store, create once", "creating a file that exists is refused, so a second driver cannot write")


def _read_finding(store: DurableStore, name: str) -> Finding:
    if store.read(name) != CONTENT or name not in store.names(FOLDER):
        return problem(
            "store, read", "what was written is not what is read, or is not listed", "use a store with consistent reads"
        )
    return fine("store, read", "what was written is read and listed at once")


def _clock_finding(store: DurableStore, name: str) -> Finding:
    try:
        written = store.filesystem.modified(store.path(name)).timestamp()
    except (OSError, NotImplementedError, AttributeError):
        return note("clock", "the store does not tell when a file was written", "keep this machine's clock right with NTP")
    skew_s = abs(time.time() - written)
    words = f"this clock and the store's differ by {seconds_in_words(skew_s)}"
    if skew_s > MOST_SKEW_S:
        return note("clock", words, "set the clock with NTP: latencies and checkpoint ages are told by it")
    return fine("clock", words)


def _delete_finding(store: DurableStore, name: str) -> Finding:
    if store.exists(name):
        return problem(
            "store, delete", "a deleted file is still there", "allow deletion: old checkpoints and journal records are removed"
        )
    return fine("store, delete", "files can be deleted")


def _local_findings(store: DurableStore) -> Iterator[Finding]:
    folder = Path(store.root)
    probe = folder / FOLDER
    if probe.is_dir() and not any(probe.iterdir()):
        probe.rmdir()
    free = shutil.disk_usage(folder).free
    if not any(folder.iterdir()):
        folder.rmdir()
    yield note("store, place", f"{folder} is a folder of this machine", "executors on other machines need a store that all reach")
    words = f"{bytes_in_words(free)} free"
    if free < LEAST_FREE_BYTES:
        yield note("space, store", words, f"make room: at least {bytes_in_words(LEAST_FREE_BYTES)}")
    else:
        yield fine("space, store", words)
