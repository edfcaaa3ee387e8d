"""Kills, multi-kills and additions on a real cluster, by seed; every query's output compared with a failure-free run."""

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from resurge.connectors.contracts import StagedPart
from resurge.connectors.posts import posts
from resurge.connectors.sinks import MemorySink
from resurge.coordinator.input_log import entries
from resurge.coordinator.replay import replayed
from resurge.experiments.asking import LEAST_NODES, MOST_NODES, REQUESTED, Asking
from resurge.experiments.failure_schedules import FailureSchedules
from resurge.experiments.hashtags import Hashtags, hashtags
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import Runner
from resurge.runtime.driver.scaling import Scaler
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import POLL_S, START_TIMEOUT_S, EmbeddedCluster
from resurge.runtime.embedded_cluster.runner import EmbeddedScaler, cluster_runner
from resurge.telemetry.log import TelemetryLog
from resurge.testing.fault_injection import Striker
from resurge.testing.inline_runner import InlineRunner

EPOCHS = 12
POSTS_PER_EPOCH = 400
CHECKPOINT_INTERVAL = 4
KEY_GROUPS = 2


class EveryPublication(MemorySink):
    """Keeps each publication of a part, also one that is published again: a repetition shows as rows too many.

    The contract lets a driver that was started again repeat a publication. Here the driver lives on, so none may come.
    """

    def __init__(self) -> None:
        super().__init__()
        self._publications = 0

    def __reduce__(self) -> tuple[Callable[[], "EveryPublication"], tuple[()]]:
        return (EveryPublication, ())

    def publish(self, parts: Sequence[StagedPart]) -> None:
        """Keep the parts under a name that no earlier publication has."""
        self._publications += 1
        super().publish([msgspec.structs.replace(part, part=f"{part.part}#{self._publications}") for part in parts])


@dataclass(frozen=True)
class Verdict:
    """What became of one seed."""

    seed: int
    kills: int
    lost: int
    duplicated: int
    took_s: float = 0.0
    disturbed: int = 0
    moved: int = 0
    scaled: int = 0
    difference: str = ""
    """Where the driver's inputs lead to other decisions when they are replayed."""

    def to_json(self) -> dict[str, int | float | str]:
        """As `--json` prints it."""
        found: dict[str, int | float | str] = {"seed": self.seed, "kills": self.kills, "disturbed": self.disturbed}
        found |= {"lost": self.lost, "duplicated": self.duplicated, "took_s": round(self.took_s, 1)}
        found |= {name: count for name, count in (("moved", self.moved), ("scaled", self.scaled)) if count}
        return found | ({"replay": self.difference} if self.difference else {})


def job() -> Hashtags:
    """The 15 queries over a fixed number of posts, cut into the same epochs every time."""
    source = posts(total=EPOCHS * POSTS_PER_EPOCH, posts_per_epoch=POSTS_PER_EPOCH, zipf=1.1, distinct=3_000)
    return hashtags(source, key_groups=KEY_GROUPS, make_sink=lambda name: EveryPublication())


def shown(run: Hashtags) -> dict[str, pl.DataFrame]:
    """Every query's rows with their epochs."""
    return {name: sink.table(epoch=True) for name, sink in run.sinks.items() if isinstance(sink, MemorySink)}


def execute(
    runner: Runner,
    strategy: str,
    telemetry: TelemetryLog | None = None,
    input_log: Path | None = None,
    prepare: Callable[[Engine], None] | None = None,
    scaler: Scaler | None = None,
) -> dict[str, pl.DataFrame]:
    """Run the job to its end; `prepare` is given its engine before. With a scaler the number of nodes may change."""
    run = job()
    with tempfile.TemporaryDirectory(prefix="resurge-chaos-") as folder:
        # Without back-pressure: rows are compared by epoch, so that every run must cut the same epochs.
        options = RunOptions(
            folder,
            interval_s=0,
            checkpoint_interval=CHECKPOINT_INTERVAL,
            strategy=strategy,
            back_pressure=False,
            input_log=input_log,
            scale=None if scaler is None else f"{LEAST_NODES}..{MOST_NODES}",
        )
        engine = Engine(run.topology, runner, options, telemetry, scaler)
        if prepare is not None:
            prepare(engine)
        run_until_done(engine, until_idle=True)
    return shown(run)


def replay_difference(input_log: Path) -> str:
    """Where the driver's inputs, handled again, lead to other decisions; empty if nowhere."""
    *_, last = replayed(entries(input_log.read_bytes()))
    return f"input {last.number}: {last.difference}" if last.difference else ""


def compare(got: dict[str, pl.DataFrame], wanted: dict[str, pl.DataFrame]) -> tuple[int, int]:
    """Rows lost and rows too many, over all queries, as multisets."""
    lost = duplicated = 0
    for query, rows in wanted.items():
        columns = rows.columns
        left = rows.group_by(columns).len("wanted")
        right = got[query].group_by(columns).len("got")
        both = left.join(right, on=columns, how="full", coalesce=True, nulls_equal=True).fill_null(0, matches_supertype=False)
        counts = both.select(pl.col("wanted").fill_null(0).cast(pl.Int64), pl.col("got").fill_null(0).cast(pl.Int64))
        difference = counts.get_column("wanted") - counts.get_column("got")
        lost += int(difference.filter(difference > 0).sum())
        duplicated -= int(difference.filter(difference < 0).sum())
    return lost, duplicated


@contextmanager
def arena(nodes: int, faults: Sequence[str] = ("kill",)) -> Iterator[tuple[EmbeddedCluster, SparkRunner]]:
    """A cluster and a session on it, for many seeds; only links between hosts can be cut."""
    with EmbeddedCluster(nodes, has_hosts="cut" in faults) as cluster, cluster_runner(cluster, "chaos") as runner:
        yield cluster, runner


def replenish(cluster: EmbeddedCluster, runner: SparkRunner, nodes: int) -> None:
    """As many nodes as every seed begins with, whatever the seed before left; the engine waits until they are warm."""
    alive = [node.name for node in cluster.nodes() if node.is_alive]
    # More nodes than asked for would make every later seed slower, and another one than when it is repeated alone.
    if alive[nodes:]:
        cluster.kill(*alive[nodes:])
    wanted = {*alive[:nodes], *(cluster.add(nodes - len(alive)) if len(alive) < nodes else ())}
    deadline = time.monotonic() + START_TIMEOUT_S
    # Executors of nodes that were just killed are still counted for a moment.
    while set(cluster.wait_for(runner.spark, nodes).values()) != wanted and time.monotonic() < deadline:
        time.sleep(POLL_S)


def run_seed(
    arena: tuple[EmbeddedCluster, SparkRunner],
    seed: int,
    strategy: str,
    schedules: FailureSchedules,
    wanted: dict[str, pl.DataFrame],
) -> Verdict:
    """One failure schedule, from a cluster that has all its nodes."""
    began = time.monotonic()
    cluster, runner = arena
    replenish(cluster, runner, schedules.nodes)
    rng = random.Random(f"victims of {seed}")
    striker = Striker(cluster, schedules.strikes(seed), lambda alive, count: rng.sample(sorted(alive), count))
    telemetry, asking = TelemetryLog(), list[Asking]()
    telemetry.listeners.append(striker.listen)

    def prepare(engine: Engine) -> None:
        asking.append(Asking(engine, [fault for fault in schedules.faults if fault in REQUESTED], seed))
        telemetry.listeners.append(asking[0].listen)

    with tempfile.TemporaryDirectory(prefix="resurge-chaos-") as folder:
        log = Path(folder) / "chaos.inputs"
        try:
            scaler = EmbeddedScaler(cluster, runner.spark) if "scale" in schedules.faults else None
            got = execute(runner, strategy, telemetry, log, prepare, scaler)
        finally:
            striker.finish()
        difference = replay_difference(log)
    took_s, disturbed = time.monotonic() - began, len(striker.disturbed)
    asked = asking[0]
    return Verdict(seed, striker.kills, *compare(got, wanted), took_s, disturbed, asked.moved, asked.scaled, difference)


def chaos(
    seeds: Sequence[int], schedules: FailureSchedules, strategy: str, progress: Callable[[Verdict], None]
) -> dict[str, Any]:
    """All seeds, one after another on one cluster."""
    wanted = execute(InlineRunner(2), strategy)
    verdicts = []
    with arena(schedules.nodes, schedules.faults) as made:
        for seed in seeds:
            verdicts.append(run_seed(made, seed, strategy, schedules, wanted))
            progress(verdicts[-1])
    return {
        "strategy": strategy,
        "faults": list(schedules.faults),
        "seeds": [verdict.to_json() for verdict in verdicts],
        "lost": sum(verdict.lost for verdict in verdicts),
        "duplicated": sum(verdict.duplicated for verdict in verdicts),
    }


__all__ = ["EPOCHS", "Verdict", "chaos", "run_seed"]
