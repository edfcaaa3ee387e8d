"""Random kills, multi-kills and additions on a real cluster, by seed; every query's output compared with a failure-free run."""

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import polars as pl

from resurge.connectors.posts import posts
from resurge.connectors.sinks import MemorySink
from resurge.experiments.failures import Strike, Striker
from resurge.experiments.hashtags import Hashtags, hashtags
from resurge.runtime.driver.cluster import EmbeddedCluster
from resurge.runtime.driver.cluster_runner import cluster_runner
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import InlineRunner, Runner
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.telemetry.log import TelemetryLog

EPOCHS = 12
POSTS_PER_EPOCH = 400
CHECKPOINT_INTERVAL = 4
KEY_GROUPS = 2


@dataclass(frozen=True)
class Verdict:
    """What became of one seed."""

    seed: int
    kills: int
    lost: int
    duplicated: int

    def to_json(self) -> dict[str, int]:
        """As `--json` prints it."""
        return {"seed": self.seed, "kills": self.kills, "lost": self.lost, "duplicated": self.duplicated}


def job() -> Hashtags:
    """The 15 queries over a fixed number of posts, cut into the same epochs every time."""
    source = posts(total=EPOCHS * POSTS_PER_EPOCH, posts_per_epoch=POSTS_PER_EPOCH, zipf=1.1, distinct=3_000)
    return hashtags(source, key_groups=KEY_GROUPS)


def strikes(seed: int) -> list[Strike]:
    """The failures of a seed: one to three blows; what is killed is replaced, sooner or later, never by less."""
    rng = random.Random(seed)
    found = []
    for epoch in sorted(rng.sample(range(1, EPOCHS - 1), rng.choice((1, 2, 2, 3)))):
        kill = rng.choice((1, 1, 2, 2, 3, 4))
        found.append(Strike(epoch, rng.uniform(0, 1.5), kill, tuple(rng.uniform(0, 4) for _ in range(kill))))
    return found


def shown(run: Hashtags) -> dict[str, pl.DataFrame]:
    """Every query's rows with their epochs."""
    return {name: sink.table(epoch=True) for name, sink in run.sinks.items() if isinstance(sink, MemorySink)}


def execute(runner: Runner, strategy: str, telemetry: TelemetryLog | None = None) -> dict[str, pl.DataFrame]:
    """Run the job to its end."""
    run = job()
    with tempfile.TemporaryDirectory(prefix="resurge-chaos-") as folder:
        options = RunOptions(folder, interval_s=0, checkpoint_interval=CHECKPOINT_INTERVAL, strategy=strategy)
        run_until_done(Engine(run.topology, runner, options, telemetry), until_idle=True)
    return shown(run)


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
def arena(nodes: int) -> Iterator[tuple[EmbeddedCluster, SparkRunner]]:
    """A cluster and a session on it, for many seeds."""
    with EmbeddedCluster(nodes) as cluster, cluster_runner(cluster, "chaos") as runner:
        yield cluster, runner


def run_seed(
    cluster: EmbeddedCluster, runner: SparkRunner, seed: int, strategy: str, nodes: int, wanted: dict[str, pl.DataFrame]
) -> Verdict:
    """One failure schedule; afterwards the cluster has its nodes again."""
    missing = nodes - sum(node.is_alive for node in cluster.nodes())
    if missing > 0:
        cluster.add(missing)
    cluster.wait_for(runner.spark, nodes)
    rng = random.Random(f"victims of {seed}")
    striker = Striker(cluster, strikes(seed), lambda alive, count: rng.sample(sorted(alive), count))
    telemetry = TelemetryLog()
    telemetry.listeners.append(striker.listen)
    try:
        got = execute(runner, strategy, telemetry)
    finally:
        striker.finish()
    return Verdict(seed, striker.kills, *compare(got, wanted))


def chaos(seeds: Sequence[int], nodes: int, strategy: str, tell: Callable[[Verdict], None]) -> dict[str, Any]:
    """All seeds, one after another on one cluster."""
    wanted = execute(InlineRunner(2), strategy)
    verdicts = []
    with arena(nodes) as (cluster, runner):
        for seed in seeds:
            verdicts.append(run_seed(cluster, runner, seed, strategy, nodes, wanted))
            tell(verdicts[-1])
    return {
        "strategy": strategy,
        "seeds": [verdict.to_json() for verdict in verdicts],
        "lost": sum(verdict.lost for verdict in verdicts),
        "duplicated": sum(verdict.duplicated for verdict in verdicts),
    }


def repeating(seed: int, nodes: int, strategy: str) -> str:
    """The command that repeats a seed."""
    return f"resurge chaos --seed {seed} --nodes {nodes} --strategy {strategy}"


__all__ = ["Verdict", "chaos", "repeating", "run_seed"]
