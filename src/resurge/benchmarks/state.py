"""Cost must follow change, not size: the same changes against a small and a large state, and with and without checkpoints."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from resurge.builder import TopologyBuilder
from resurge.connectors.contracts import Offset, ReadLimit, Source, SourceLog
from resurge.connectors.sinks import DiscardSink
from resurge.model.topology import Topology
from resurge.operators.aggregates import count
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.session import open_session
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


class KeyReader:
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

    def read(self, partition: Any) -> Iterator[Any]:
        """Not used: `read_frames` is."""
        yield from self.read_frames(partition)[0].to_arrow().to_batches()

    def commit(self, end: Offset) -> None:
        """Nothing to forget."""


def counting(keys: int, changed: int) -> Topology:
    """Count per key."""
    job = TopologyBuilder("state")
    job.source("keys", KeySource(keys, changed)).aggregate("counts", key="key", n=count()).query(sink=DiscardSink())
    return job.build()


def measure(keys: int, changed: int, epochs: int, tell: Callable[[str], None]) -> dict[str, float]:
    """Milliseconds per epoch, interleaved so that a noisy moment hits every setting."""
    spark = open_session("local[2]", "state-benchmark")
    try:
        with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
            settings = {"small": (SMALL_KEYS, 0), "large": (keys, 0), "saving": (keys, CHECKPOINT_INTERVAL)}
            engines = {name: _loaded(spark, Path(folder) / name, *chosen, changed, tell) for name, chosen in settings.items()}
            took = _interleaved(engines, epochs, tell)
            for engine in engines.values():
                engine.close("measured")
    finally:
        spark.stop()
    small, large = (statistics.median(took[name]) * 1000 for name in ("small", "large"))
    # Block by block, each against its neighbour: a noisy moment spoils one pair, not the sum.
    pairs = zip(_blocks(took["saving"]), _blocks(took["large"]), strict=True)
    overhead = statistics.median(saving / plain for saving, plain in pairs) - 1
    return {
        "small_ms": round(small, 1),
        "large_ms": round(large, 1),
        "ratio": round(large / small, 3),
        "checkpoint_overhead": round(overhead, 4),
    }


def _blocks(took_s: list[float]) -> list[float]:
    """Seconds per block of epochs, each block with one checkpoint."""
    return [sum(took_s[start : start + CHECKPOINT_INTERVAL]) for start in range(0, len(took_s), CHECKPOINT_INTERVAL)]


def _loaded(spark: Any, folder: Path, keys: int, interval: int, changed: int, tell: Callable[[str], None]) -> Engine:
    """An engine whose state has all keys; the checkpoint of that loading is not measured."""
    tell(f"loading {keys:,} keys")
    options = RunOptions(str(folder), interval_s=0, checkpoint_interval=interval)
    engine = Engine(counting(keys, changed), SparkRunner(spark), options)
    engine.start()
    for _ in range(KeyReader(keys, changed).loading_epochs + 2):
        engine.step()
    if interval:
        engine.checkpoint()
    return engine


def _interleaved(engines: dict[str, Engine], epochs: int, tell: Callable[[str], None]) -> dict[str, list[float]]:
    """Blocks of as many epochs as lie between two checkpoints, one engine after another."""
    took: dict[str, list[float]] = {name: [] for name in engines}
    for block in range(-(-epochs // CHECKPOINT_INTERVAL)):
        tell(f"block {block + 1}")
        for name, engine in engines.items():
            for _ in range(CHECKPOINT_INTERVAL):
                began = time.perf_counter()
                engine.step()
                took[name].append(time.perf_counter() - began)
    return took
