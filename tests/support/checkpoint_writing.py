"""Checkpoints that are written at a known moment, by the thread that runs the job, so that durable writes can be counted."""

from collections.abc import Callable
from concurrent.futures import Future

import msgspec
import pytest

from resurge.runtime.driver import checkpoint_writes as manifest_writes
from resurge.runtime.driver.checkpointing import Manifest
from resurge.runtime.worker import checkpoint_writes
from resurge.storage import paths
from resurge.storage.node_store import NodeStore


def writing(monkeypatch: pytest.MonkeyPatch, *, late: bool) -> None:
    """Let checkpoints be written in the epoch that takes them, or in the next one, and by the thread that counts the gaps."""

    def at_once(write: Callable[[], Manifest]) -> Future[Manifest]:
        done: Future[Manifest] = Future()
        done.set_result(write())
        return done

    monkeypatch.setattr(checkpoint_writes, "start", lambda write: write())
    monkeypatch.setattr(manifest_writes, "start", at_once)
    if late:

        def take(store: NodeStore, name: str, taken: checkpoint_writes.Taken) -> None:
            store.write(paths.local_taken(name), msgspec.json.encode(taken))

        monkeypatch.setattr(checkpoint_writes, "take", take)
