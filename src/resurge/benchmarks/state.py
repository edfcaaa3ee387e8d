"""Cost must follow change, not size: the same changes against a small and a large state, and with and without checkpoints."""

import contextlib
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import psutil

from resurge.api.builder import TopologyBuilder
from resurge.connectors.contracts import Offset, ReadLimit, Source, SourceLog, SourceReader
from resurge.connectors.sinks import DiscardSink
from resurge.model.topology import Topology
from resurge.operators.aggregates import count
from resurge.operators.stateless import SourceOperator
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.session import default_local_root, open_session
from resurge.runtime.driver.spark_runner import SparkRunner

SMALL_KEYS = 100_000
KEYS_PER_LOADING_EPOCH = 1_000_000
BLOCK_EPOCHS = 20
AFTERWARDS = 5
"""So many epochs after a checkpoint was logged count as its own: what it replaces is deleted meanwhile."""
SETTLING_EPOCHS = 100
"""Small epochs after loading, until it is settled whether they run in one slot (`protocols/slot_choice.py`)."""
SPLITS = 2


@dataclass(frozen=True)
class KeySource(Source):
    """First every key once, in large epochs; then so many different pseudo-random keys per epoch."""

    keys: int
    changed: int

    def schema(self) -> pl.Schema:
        """One integer key."""
        return pl.Schema({"key": pl.Int64()})

    def reader(self, log: SourceLog) -> "KeyReader":
        """A reader of these keys."""
        return KeyReader(self.keys, self.changed)


class KeyReader(SourceReader):
    """An offset is a number of epochs; a split is (epoch, share)."""

    def __init__(self, keys: int, changed: int) -> None:
        self.keys = keys
        self.changed = changed

    @property
    def loading_epochs(self) -> int:
        """Epochs until every key is in state."""
        return -(-self.keys // KEYS_PER_LOADING_EPOCH)

    def initialOffset(self) -> Offset:
        """Nothing read."""
        return {"epoch": 0}

    def latest_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        """One more epoch; the stream has no end."""
        return {"epoch": start["epoch"] + 1}

    def partitions(self, start: Offset, end: Offset) -> Sequence[tuple[int, int]]:
        """Two splits an epoch."""
        return [(epoch, share) for epoch in range(start["epoch"], end["epoch"]) for share in range(SPLITS)]

    def read_frames(self, partition: tuple[int, int]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The keys of a split."""
        epoch, share = partition
        if epoch < self.loading_epochs:
            first = epoch * KEYS_PER_LOADING_EPOCH
            keys = np.arange(first, min(first + KEYS_PER_LOADING_EPOCH, self.keys))[share::SPLITS]
        else:
            # Different ones: drawn with repetition, fewer keys would change in a small state than in a large one.
            first, step = (int(number) for number in np.random.default_rng(epoch).integers(self.keys, size=2))
            while math.gcd(step, self.keys) > 1:
                step += 1
            keys = (first + step * np.arange(share, self.changed, SPLITS)) % self.keys
        return pl.DataFrame({"key": keys}), pl.DataFrame(schema={"location": pl.String, "row": pl.String, "error": pl.String})


def counting(keys: int, changed: int) -> Topology:
    """Count per key."""
    job = TopologyBuilder("state")
    job.source("keys", KeySource(keys, changed)).aggregate("counts", key="key", n=count()).query(sink=DiscardSink())
    return job.build()


def measure(keys: int, changed: int, epochs: int, checkpoints: int, progress: Callable[[str], None]) -> dict[str, float]:
    """Milliseconds per epoch with a small and a large state, what checkpoints, memory and a restore of the large one cost."""
    spark = open_session("local[2]", "state-benchmark")
    try:
        with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
            small = _loaded(spark, Path(folder) / "small", counting(SMALL_KEYS, changed), progress)
            before = _worker_memory_bytes()
            large = _loaded(spark, Path(folder) / "large", counting(keys, changed), progress)
            held = _worker_memory_bytes() - before
            took = _interleaved({"small": small, "large": large}, epochs, progress)
            small.close("measured")
            steps = _with_checkpoints(large, checkpoints, progress)
            large.close()
            progress(f"restoring {keys:,} keys")
            restored = _restored(spark, Path(folder) / "large", keys, changed)
    finally:
        spark.stop()
    small_ms, large_ms = (statistics.median(took[name]) * 1000 for name in ("small", "large"))
    return {
        "keys": keys,
        "small_ms": round(small_ms, 1),
        "large_ms": round(large_ms, 1),
        "ratio": round(large_ms / small_ms, 3),
        "checkpoint_overhead": round(checkpoint_overhead(steps), 4),
        "checkpoints": checkpoints,
        "epochs_per_checkpoint": round(len(steps) / checkpoints),
        "memory_mb_per_million_keys": round(held / keys, 1),
        **restored,
    }


class Step(NamedTuple):
    """One epoch of a job with checkpoints: what it took, and whether one was being written meanwhile."""

    took_s: float
    is_writing: bool


def checkpoint_overhead(steps: Sequence[Step]) -> float:
    """The share by which checkpoints lengthen a run: what the epochs of one take longer than as many others, over all time.

    Everything that a checkpoint costs falls into the epochs from the one that takes it until some epochs after it was logged,
    whichever thread or process does it. The sum of these is compared with sums of as many neighbours between checkpoints, and
    medians of both are taken: about once in a hundred epochs most of the state is merged, which takes longer than a
    checkpoint, and it must not decide in which of the two that falls.

    >>> checkpoint_overhead([*[Step(1.0, False)] * 50, Step(1.2, True), Step(1.0, True), *[Step(1.0, False)] * 46])
    0.002037
    """
    is_near = [any(step.is_writing for step in steps[max(0, at - AFTERWARDS) : at + 1]) for at in range(len(steps))]
    near, far = list[list[float]](), list[list[float]]()
    for of_checkpoint, found in groupby(zip(is_near, steps, strict=True), key=lambda pair: pair[0]):
        (near if of_checkpoint else far).append([step.took_s for _, step in found])
    extra_s = list[float]()
    for window in near:
        size = min(len(window), max(map(len, far)))
        usual_s = [sum(others[at : at + size]) for others in far for at in range(len(others) - size + 1)]
        extra_s.append(sum(window) - statistics.median(usual_s) * len(window) / size)
    return round(statistics.median(extra_s) * len(near) / sum(step.took_s for step in steps), 6)


def _loaded(spark: Any, folder: Path, topology: Topology, progress: Callable[[str], None]) -> Engine:
    """An engine whose state has all keys, all of them in a checkpoint, as a user has it who runs epochs as fast as possible."""
    source = topology.operators["keys"]
    assert isinstance(source, SourceOperator) and isinstance(source.source, KeySource)
    reader = KeyReader(source.source.keys, source.source.changed)
    progress(f"loading {reader.keys:,} keys")
    engine = Engine(topology, SparkRunner(spark), RunOptions(str(folder), interval_s=0, back_pressure=False))
    engine.start()
    for _ in range(reader.loading_epochs + SETTLING_EPOCHS):
        engine.step()
    while engine.recovery.checkpoint < reader.loading_epochs:
        engine.step()
    return engine


def _interleaved(engines: dict[str, Engine], epochs: int, progress: Callable[[str], None]) -> dict[str, list[float]]:
    """Blocks of epochs, one engine after another, in an order that turns around."""
    took: dict[str, list[float]] = {name: [] for name in engines}
    for block in range(-(-epochs // BLOCK_EPOCHS)):
        progress(f"block {block + 1}")
        for name, engine in list(engines.items())[:: 1 if block % 2 else -1]:
            for _ in range(BLOCK_EPOCHS):
                took[name].append(_timed(engine).took_s)
    return took


def _with_checkpoints(engine: Engine, checkpoints: int, progress: Callable[[str], None]) -> list[Step]:
    """All epochs from when a checkpoint was logged until so many more were."""
    began = engine.recovery.checkpoint
    while engine.recovery.checkpoint == began:
        engine.step()
    for _ in range(AFTERWARDS):
        engine.step()
    steps: list[Step] = []
    for number in range(checkpoints):
        progress(f"checkpoint {number + 1}")
        last = engine.recovery.checkpoint
        while engine.recovery.checkpoint == last:
            steps.append(_timed(engine))
        steps += [_timed(engine) for _ in range(AFTERWARDS)]
    return steps


def _timed(engine: Engine) -> Step:
    was_writing = engine.state.taken is not None
    began = time.perf_counter()
    engine.step()
    return Step(time.perf_counter() - began, was_writing or engine.state.taken is not None)


def _worker_memory_bytes() -> int:
    """What the Python workers hold, each shared page counted once."""
    found = 0
    for process in psutil.Process().children(recursive=True):
        # A worker may end while it is looked at.
        with contextlib.suppress(psutil.Error):
            if any("resurge.runtime.worker.daemon" in word for word in process.cmdline()):
                found += process.memory_full_info().pss
    return found


def _restored(spark: Any, folder: Path, keys: int, changed: int) -> dict[str, float]:
    """Seconds to restore the checkpoint on nodes that have nothing, against copying the same bytes."""
    content = [path for path in (folder / "checkpoints").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in content)
    with tempfile.TemporaryDirectory(prefix="resurge-bench-", dir=default_local_root()) as target:
        began = time.perf_counter()
        for path in content:
            shutil.copyfile(path, Path(target) / path.name)
        copy_s = time.perf_counter() - began
    engine = Engine(counting(keys, changed), SparkRunner(spark), RunOptions(str(folder), interval_s=0, back_pressure=False))
    began = time.perf_counter()
    engine.start()
    engine.step()
    restore_s = time.perf_counter() - began
    began = time.perf_counter()
    engine.step()
    usual_s = time.perf_counter() - began
    engine.close("measured")
    return {
        "checkpoint_mb": round(size / 1e6, 1),
        "restore_s": round(restore_s - usual_s, 3),
        "copy_s": round(copy_s, 3),
        "restore_over_copy": round((restore_s - usual_s) / copy_s, 2),
    }
