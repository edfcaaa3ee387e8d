"""Cost must follow change, not size: the same changes against a small and a large state, and with and without checkpoints."""

import contextlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil

from resurge.api.builder import TopologyBuilder
from resurge.connectors.contracts import Offset, ReadLimit, Source, SourceLog, SourceReader
from resurge.connectors.sinks import DiscardSink
from resurge.model.topology import Topology
from resurge.operators.aggregates import count
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.session import default_local_root, open_session
from resurge.runtime.driver.spark_runner import SparkRunner

SMALL_KEYS = 100_000
KEYS_PER_LOADING_EPOCH = 1_000_000
CHECKPOINT_INTERVAL = 10
SPLITS = 2


@dataclass(frozen=True)
class KeySource(Source):
    """First every key once, in large epochs; then some pseudo-random keys per epoch."""

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
            keys = np.random.default_rng([epoch, share]).integers(0, self.keys, self.changed // SPLITS)
        return pl.DataFrame({"key": keys}), pl.DataFrame(schema={"location": pl.String, "row": pl.String, "error": pl.String})


def counting(keys: int, changed: int) -> Topology:
    """Count per key."""
    job = TopologyBuilder("state")
    job.source("keys", KeySource(keys, changed)).aggregate("counts", key="key", n=count()).query(sink=DiscardSink())
    return job.build()


def measure(keys: int, changed: int, epochs: int, progress: Callable[[str], None]) -> dict[str, float]:
    """Milliseconds per epoch with a small and a large state, what checkpoints, memory and a restore of the large one cost."""
    spark = open_session("local[2]", "state-benchmark")
    try:
        with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
            small = _loaded(spark, Path(folder) / "small", SMALL_KEYS, changed, progress)
            before = _worker_memory_bytes()
            large = _loaded(spark, Path(folder) / "large", keys, changed, progress)
            held = _worker_memory_bytes() - before
            took = _interleaved({"small": small, "large": large}, epochs, progress)
            small.close("measured")
            large.close()
            progress(f"restoring {keys:,} keys")
            restored = _restored(spark, Path(folder) / "large", keys, changed)
    finally:
        spark.stop()
    small_ms, large_ms = (statistics.median(_ordinary(took[name])) * 1000 for name in ("small", "large"))
    return {
        "keys": keys,
        "small_ms": round(small_ms, 1),
        "large_ms": round(large_ms, 1),
        "ratio": round(large_ms / small_ms, 3),
        "checkpoint_overhead": round(checkpoint_overhead(took["large"]), 4),
        "memory_mb_per_million_keys": round(held / keys, 1),
        **restored,
    }


def checkpoint_overhead(took_s: Sequence[float]) -> float:
    """The share by which checkpoints lengthen a run: the epochs with one against the median of the others of their block.

    Each block of epochs ends with a checkpoint. Both are of the same run and of neighbouring moments, and the median over
    blocks is taken, so that neither a slow minute nor a slow epoch decides.

    >>> checkpoint_overhead([1.0] * 9 + [1.5] + [2.0] * 9 + [3.0])
    0.05
    """
    blocks = [took_s[end - CHECKPOINT_INTERVAL : end] for end in range(CHECKPOINT_INTERVAL, len(took_s) + 1, CHECKPOINT_INTERVAL)]
    extra = [(block[-1] - usual) / (CHECKPOINT_INTERVAL * usual) for block in blocks for usual in [statistics.median(block[:-1])]]
    return statistics.median(extra)


def _ordinary(took_s: Sequence[float]) -> list[float]:
    """The epochs without a checkpoint."""
    return [took for index, took in enumerate(took_s, 1) if index % CHECKPOINT_INTERVAL]


def _loaded(spark: Any, folder: Path, keys: int, changed: int, progress: Callable[[str], None]) -> Engine:
    """An engine whose state has all keys; the last loading epoch is one with a checkpoint, so that blocks begin after it."""
    progress(f"loading {keys:,} keys")
    options = RunOptions(str(folder), interval_s=0, checkpoint_interval=CHECKPOINT_INTERVAL, back_pressure=False)
    engine = Engine(counting(keys, changed), SparkRunner(spark), options)
    engine.start()
    loading = KeyReader(keys, changed).loading_epochs + 2
    for _ in range(-(-loading // CHECKPOINT_INTERVAL) * CHECKPOINT_INTERVAL):
        engine.step()
    return engine


def _interleaved(engines: dict[str, Engine], epochs: int, progress: Callable[[str], None]) -> dict[str, list[float]]:
    """Blocks of epochs that each end with a checkpoint, one engine after another."""
    took: dict[str, list[float]] = {name: [] for name in engines}
    for block in range(-(-epochs // CHECKPOINT_INTERVAL)):
        progress(f"block {block + 1}")
        for name, engine in engines.items():
            for _ in range(CHECKPOINT_INTERVAL):
                began = time.perf_counter()
                engine.step()
                took[name].append(time.perf_counter() - began)
    return took


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
