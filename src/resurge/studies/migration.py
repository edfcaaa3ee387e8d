"""ELASTIC's figures 5 and 6 on real Spark: what moving a key group costs, over the size of its state and the rows to replay.

The paper's job on flights from New York: input, delays, delay per airplane and year; every delay is kept. One year is
repeated, year by year, until the state has the size that is asked for; then rows arrive at the paper's 8,000 per second.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import polars as pl

from resurge.api.builder import TopologyBuilder
from resurge.benchmarks.users import asked, run_beside, wait_until
from resurge.connectors.contracts import Offset, Source, SourceLog
from resurge.connectors.paced import Pace, PacedReader, RowRange
from resurge.connectors.sinks import DiscardSink
from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.model.requests import CPA, CPAL, WAYS, Move
from resurge.model.topology import Topology
from resurge.operators.aggregates import count, sum_
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.runtime.embedded_cluster.runner import cluster_runner
from resurge.studies.flights import flights
from resurge.telemetry.events import CatchUpFinished, EpochFinished, Event, MoveEnded
from resurge.telemetry.log import TelemetryLog

ROWS_PER_S = 8_000.0
ROWS_PER_LOADING_EPOCH = 500_000
STATE_ROWS = (200_000, 1_000_000, 4_000_000)
REPLAYED_EPOCHS = (1, 8)
CHECKPOINT_INTERVAL = 20
"""Every 10 seconds, as by default; no move lasts until the next one."""
INTERVAL_S = 0.5
NODES, KEY_GROUPS, SPLITS = 3, 8, 3
NORMAL_EPOCHS = 5
REPEATS = 3
ANSWER_S, WAIT_S = 120.0, 240.0
MOVED, OTHER = "events", "totals"
FIRST_YEAR = 2013


@lru_cache(maxsize=2)
def _year(path: str) -> pl.DataFrame:
    return pl.read_parquet(path)


@dataclass(frozen=True)
class Flights(Source):
    """The year again and again: the first rows at once, the others at their rate."""

    path: str
    at_once: int

    def schema(self) -> pl.Schema:
        """An airplane, a year, the number of the row and the delay."""
        return pl.Schema({"plane": pl.String(), "year": pl.Int64(), "number": pl.Int64(), "delay": pl.Float64()})

    def reader(self, log: SourceLog) -> "FlightReader":
        """A reader of these rows."""
        return FlightReader(self.path, self.at_once)


class FlightReader(PacedReader):
    """Numbered rows; those that are there at once have arrived when the job begins."""

    def __init__(self, path: str, at_once: int) -> None:
        super().__init__("flights", Pace(ROWS_PER_S, ROWS_PER_LOADING_EPOCH, splits=SPLITS))
        self.path, self.at_once = path, at_once

    def rows(self, split: RowRange) -> pl.DataFrame:
        """The rows of a split: the same year, counted on."""
        year = _year(self.path)
        number = pl.int_range(split.first, split.last, eager=True).alias("number")
        taken = year[(number % year.height).to_numpy()]
        years = (number // year.height + FIRST_YEAR).alias("year")
        return taken.with_columns(years, number).select("plane", "year", "number", "delay")

    def arrival_s(self, start: Offset, end: Offset) -> float | None:
        """The mean arrival time of rows that come at their rate."""
        if end["started_at"] is None:
            return None
        middle = (int(start["rows"]) + int(end["rows"]) - 1) / 2 - self.at_once
        return float(end["started_at"] + max(0.0, middle) / ROWS_PER_S)

    def _available(self, start: Offset) -> tuple[float | None, int]:
        started_at, due = super()._available(start)
        return started_at, due + self.at_once


def delays_per_plane(path: Path, at_once: int) -> Topology:
    """The paper's job; `events` has the state that moves, `totals` is a query that does not."""
    job = TopologyBuilder("flights", key_groups=KEY_GROUPS)
    source = job.source("flights", Flights(str(path), at_once))
    delays = source.filter("delays", pl.col("delay").is_not_null() & pl.col("plane").is_not_null())
    delays.aggregate(OTHER, key=("plane", "year"), delay=sum_("delay"), n=count()).query(sink=DiscardSink())
    delays.aggregate(MOVED, key=("plane", "year", "number"), delay=sum_("delay")).query(sink=DiscardSink())
    return job.build()


@dataclass(frozen=True)
class Migration:
    """One move: what moved how, and what it cost.

    Ratios are of the median latency during the move, and of the longest in it, to the median since the move before, which is
    longer than from one checkpoint to the next.
    """

    how: str
    state_rows: int
    replay_rows: int
    shipped_bytes: int
    pause_s: float
    completion_s: float
    added_latency_s: float
    moved_ratio: float
    unmoved_ratio: float
    longest_ratio: float
    repeat: int = 0


@dataclass
class Watch:
    """What telemetry told."""

    epochs: list[EpochFinished] = field(default_factory=list)
    moves: list[MoveEnded] = field(default_factory=list)
    caught_up: list[tuple[float, Mapping[str, Sequence[float]]]] = field(default_factory=list)

    def listen(self, event: Event) -> None:
        """A telemetry listener."""
        if isinstance(event, EpochFinished):
            self.epochs.append(event)
        elif isinstance(event, MoveEnded):
            self.moves.append(event)
        elif isinstance(event, CatchUpFinished):
            self.caught_up.append((event.at_s, event.latencies_s))

    def latencies_s(self, query: str, since_s: float, until_s: float) -> list[float]:
        """The latencies of a query's output in a time, also of what was caught up with."""
        found = [epoch.latency_s[query] for epoch in self.epochs if since_s <= epoch.at_s <= until_s and query in epoch.latency_s]
        return found + [value for at_s, values in self.caught_up if since_s <= at_s <= until_s for value in values.get(query, ())]


@dataclass(frozen=True)
class Plan:
    """How many epochs after a checkpoint moves are asked for, and how often each way is taken."""

    replays: Sequence[int] = REPLAYED_EPOCHS
    repeats: int = REPEATS


def run_study(sizes: Sequence[int], plan: Plan, progress: Callable[[str], None]) -> list[Migration]:
    """Every way for every size of state and of replay."""
    found: list[Migration] = []
    with tempfile.TemporaryDirectory(prefix="resurge-study-") as folder:
        path = Path(folder) / "flights.parquet"
        flights().write_parquet(path)
        with EmbeddedCluster(NODES) as cluster, cluster_runner(cluster, "migration") as first:
            for size in sizes:
                progress(f"{size:,} rows of state: loading")
                runner = SparkRunner(first.spark, first.cpu_share, first.node_names)
                found += _Moves(runner, path, size, plan, progress).run()
    return found


class _Moves:
    """One job with a state of one size, whose key group goes to and fro, some times for each way and replay.

    All ways come before any of them is repeated, so that what else the machine does falls on all of them.
    """

    def __init__(self, runner: SparkRunner, path: Path, state_rows: int, plan: Plan, progress: Callable[[str], None]) -> None:
        self.runner, self.path, self.state_rows, self.plan, self.progress = runner, path, state_rows, plan, progress
        self.watch = Watch()
        self.quiet_since_s = 0.0
        self.found: list[Migration] = []

    def run(self) -> list[Migration]:
        """Run the job until all moves are made."""
        telemetry = TelemetryLog()
        telemetry.listeners.append(self.watch.listen)
        with tempfile.TemporaryDirectory(prefix="resurge-study-") as folder:
            # As in the paper, every key group that may move has a copy on another node, as old as the checkpoint.
            options = RunOptions(
                folder,
                interval_s=INTERVAL_S,
                checkpoint_interval=CHECKPOINT_INTERVAL,
                back_pressure=False,
                balance="off",
                copies_by_operator={MOVED: 1},
            )
            engine = Engine(delays_per_plane(self.path, self.state_rows), self.runner, options, telemetry)
            run_beside(engine, lambda: self._user(engine))
        return self.found

    def _user(self, engine: Engine) -> None:
        wait_until(lambda: self._is_loaded() and engine.recovery.all_live, "the state to be loaded", WAIT_S)
        wait_until(lambda: len(engine.state.copies) == KEY_GROUPS, "the copies", WAIT_S)
        self.quiet_since_s = time.time()
        for repeat, replay, how in itertools.product(range(self.plan.repeats), self.plan.replays, WAYS):
            self.progress(f"{self.state_rows:,} rows of state: {how}, {replay} epochs since the checkpoint, {repeat + 1}.")
            self.found.append(replace(self._moved(engine, how, replay), repeat=repeat))

    def _is_loaded(self) -> bool:
        return sum(epoch.rows_read for epoch in self.watch.epochs) >= self.state_rows

    def _moved(self, engine: Engine, how: str, replay: int) -> Migration:
        """Ask so many epochs after a checkpoint, once the last move is long over."""
        begun = len(self.watch.epochs)
        wait_until(lambda: len(self.watch.epochs) >= begun + NORMAL_EPOCHS, "some normal epochs", WAIT_S)
        saved = engine.recovery.checkpoint
        # A checkpoint is logged when it is durable, which may be some epochs after its own.
        wait_until(lambda: engine.recovery.checkpoint > saved, "the next checkpoint", WAIT_S)
        wait_until(lambda: engine.recovery.head - engine.recovery.checkpoint >= replay, "the moment after it", WAIT_S)
        target = self._target(engine, how)
        moves, asked_s = len(self.watch.moves), time.time()
        quiet = {query: self.watch.latencies_s(query, self.quiet_since_s, asked_s) for query in (MOVED, OTHER)}
        normal = {query: statistics.median(values) for query, values in quiet.items()}
        answer = asked(engine, Move(f"{how}-{replay}-{moves}", MOVED, NodeId(target), [0], how), ANSWER_S)
        wait_until(lambda: len(self.watch.moves) > moves, "its end", WAIT_S)
        wait_until(lambda: self.watch.epochs[-1].at_s > self.watch.moves[-1].at_s, "the epoch after it", WAIT_S)
        ended = self.watch.moves[-1]
        until_s = self.quiet_since_s = self.watch.epochs[-1].at_s
        during = {query: self.watch.latencies_s(query, asked_s, until_s) or [normal[query]] for query in normal}
        return Migration(
            how,
            self.state_rows,
            round(replay * ROWS_PER_S * INTERVAL_S),
            ended.shipped_bytes,
            answer.pause_s,
            answer.took_s,
            max(during[MOVED]) - normal[MOVED],
            statistics.median(during[MOVED]) / normal[MOVED],
            statistics.median(during[OTHER]) / normal[OTHER],
            max(max(values) / normal[query] for query, values in during.items()),
        )

    @staticmethod
    def _target(engine: Engine, how: str) -> NodeId:
        """Where a copy lies, for those ways that begin with one; else where none lies."""
        moving = Partition(MOVED, KeyGroup(0))
        others = [node for node in sorted(engine.recovery.capacity) if node != engine.recovery.statuses[moving].node]
        begins_with_copy = how in (CPA, CPAL)
        return min(others, key=lambda node: ((moving, node) in engine.state.copies) != begins_with_copy)
