"""A node joins a loaded cluster, and another is drained: how soon load follows, and what queries notice of it.

The nodes are those of the benchmark of balancing: a share of a core each, with real CPU time. Rows arrive at a steady rate.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from resurge.api.builder import TopologyBuilder
from resurge.benchmarks.balance import CPU_SHARE, KEY_GROUPS, KEYS, SEED, SPLITS, Epoch, RecordingRunner, Scores
from resurge.benchmarks.users import asked, run_beside, wait_until
from resurge.connectors.contracts import Source, SourceLog
from resurge.connectors.paced import Pace, PacedReader, RowRange
from resurge.connectors.sinks import DiscardSink
from resurge.errors import JobError
from resurge.model.names import NodeId
from resurge.model.requests import Drain
from resurge.model.topology import Topology
from resurge.operators.aggregates import count
from resurge.operators.keyed_state import value_of
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.runtime.embedded_cluster.runner import EmbeddedScaler, cluster_runner
from resurge.telemetry.events import EpochFinished, Event, MoveEnded, NodeJoined
from resurge.telemetry.log import TelemetryLog

NODES_BEFORE = 3
ROWS_PER_S = 20_000
WARM_UP_S, NORMAL_S, WATCHED_S = 20.0, 20.0, 20.0
CARRIED = 0.8
ANSWER_S = 60.0
JOIN_S = 240.0


@dataclass(frozen=True)
class SteadyKeys(Source):
    """Rows with equally frequent keys, so many per second."""

    pace: Pace

    def schema(self) -> pl.Schema:
        """A key and a value."""
        return pl.Schema({"key": pl.Int64(), "value": pl.Float64()})

    def reader(self, log: SourceLog) -> "SteadyReader":
        """A reader of these rows."""
        return SteadyReader("steady keys", self.pace)


class SteadyReader(PacedReader):
    """Rows are a pure function of their numbers."""

    def rows(self, split: RowRange) -> pl.DataFrame:
        """The rows of a split."""
        rng = np.random.default_rng([SEED, split.first])
        length = split.last - split.first
        return pl.DataFrame({"key": rng.integers(0, KEYS, length), "value": rng.random(length)})


def two_queries() -> Topology:
    """A costly operator, and a cheap one beside it."""
    job = TopologyBuilder("elastic", key_groups=KEY_GROUPS)
    rows = job.source("rows", SteadyKeys(Pace(ROWS_PER_S, splits=SPLITS)))
    made = {"key": pl.Int64, "value": pl.Float64}
    state = {"seen": value_of(pl.Int64()), "mean": value_of(pl.Float64()), "spread": value_of(pl.Float64())}
    rows.process("scores", Scores, key="key", schema=made, state=state).query(sink=DiscardSink())
    rows.aggregate("counts", key="key", n=count()).query(sink=DiscardSink())
    return job.build()


@dataclass
class Seen:
    """What a run showed, in the order of time."""

    epochs: list[EpochFinished] = field(default_factory=list)
    joined: list[NodeJoined] = field(default_factory=list)
    moves: list[MoveEnded] = field(default_factory=list)

    def listen(self, event: Event) -> None:
        """A telemetry listener."""
        if isinstance(event, EpochFinished):
            self.epochs.append(event)
        elif isinstance(event, NodeJoined):
            self.joined.append(event)
        elif isinstance(event, MoveEnded):
            self.moves.append(event)

    def latencies_s(self, since_s: float, until_s: float) -> dict[str, list[float]]:
        """By query, the latencies of the epochs that were committed in a time."""
        found: dict[str, list[float]] = {}
        for epoch in self.epochs:
            if since_s <= epoch.at_s < until_s:
                for query, value in epoch.latency_s.items():
                    found.setdefault(query, []).append(value)
        return found


def latency_ratio(normal: dict[str, list[float]], during: dict[str, list[float]]) -> float:
    """The median latency in a time over that of normal times, for the query where that is highest."""
    shared = [query for query, values in during.items() if values and normal.get(query)]
    if not shared:
        raise JobError("no epoch was committed in the time that was watched; expected some: is the machine too busy?")
    return max(statistics.median(during[query]) / statistics.median(normal[query]) for query in shared)


def carried_after_s(epochs: Sequence[Epoch], node: str, since_s: float) -> float | None:
    """How long after a moment a node used as much as it should of what nodes use on average; None if it never did."""
    for epoch in epochs:
        used = epoch.used_s.get(node, 0.0)
        if epoch.ended_s >= since_s and used >= CARRIED * statistics.fmean(epoch.used_s.values()):
            return epoch.ended_s - since_s
    return None


def measure(progress: Callable[[str], None]) -> dict[str, Any]:
    """A node joins three, then one of the four is drained."""
    with EmbeddedCluster(NODES_BEFORE, cpu_share=CPU_SHARE) as cluster, cluster_runner(cluster, "elastic") as first:
        return _measured(cluster, first, progress)


def _measured(cluster: EmbeddedCluster, first: SparkRunner, progress: Callable[[str], None]) -> dict[str, Any]:
    runner = RecordingRunner(first.spark, first.cpu_share, first.node_names)
    runner.epochs = []
    telemetry, seen, found = TelemetryLog(), Seen(), dict[str, Any]()
    telemetry.listeners.append(seen.listen)
    scaler = EmbeddedScaler(cluster, first.spark)
    telemetry.listeners.append(lambda event: scaler.joined() if isinstance(event, NodeJoined) else None)
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
        engine = Engine(two_queries(), runner, RunOptions(folder), telemetry)
        run_beside(engine, lambda: found.update(_changed(cluster, engine, seen, runner.epochs, progress)))
    return {"nodes": NODES_BEFORE + 1, "cpu_share": CPU_SHARE, "rows_per_s": ROWS_PER_S, **found}


def _changed(
    cluster: EmbeddedCluster, engine: Engine, seen: Seen, epochs: list[Epoch], progress: Callable[[str], None]
) -> dict[str, Any]:
    progress("warming up")
    wait_until(lambda: bool(seen.epochs), "the first epoch", JOIN_S)
    time.sleep(WARM_UP_S)
    since_s = time.time()
    time.sleep(NORMAL_S)
    normal = seen.latencies_s(since_s, time.time())
    progress("a node joins")
    cluster.add(1, CPU_SHARE, gently=True)
    wait_until(lambda: bool(seen.joined), "the node to join", JOIN_S)
    joined = seen.joined[-1]
    time.sleep(WATCHED_S)
    after_s = carried_after_s(epochs, joined.node, joined.at_s)
    join_ratio = latency_ratio(normal, seen.latencies_s(joined.at_s, time.time()))
    settled_s = time.time()
    time.sleep(NORMAL_S / 2)
    normal = seen.latencies_s(settled_s, time.time())
    progress("a node is drained")
    leaving = NodeId(sorted(engine.recovery.capacity)[0])
    began_s = time.time()
    answer = asked(engine, Drain("bench", leaving), ANSWER_S)
    time.sleep(WATCHED_S / 2)
    drain_ratio = latency_ratio(normal, seen.latencies_s(began_s, time.time()))
    return {
        "join": {
            "carries_after_s": None if after_s is None else round(after_s, 2),
            "latency_ratio": round(join_ratio, 3),
            "moved": sum(move.moved for move in seen.moves if move.at_s < settled_s),
        },
        "drain": {
            "took_s": round(answer.took_s, 2),
            "pause_s": round(answer.pause_s, 4),
            "latency_ratio": round(drain_ratio, 3),
        },
    }
