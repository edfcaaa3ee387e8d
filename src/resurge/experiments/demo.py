"""The demo: 15 queries on a real cluster of four nodes, two of which are killed; the queries come back in order of value."""

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from resurge.connectors.posts import PostSource, posts
from resurge.connectors.sinks import MemorySink
from resurge.experiments.chaos import compare, shown
from resurge.experiments.hashtags import Hashtags, differences, hashtags
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.session import LOCAL_MASTER, open_session
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.runtime.embedded_cluster.runner import cluster_runner
from resurge.telemetry.events import Event
from resurge.telemetry.log import TelemetryLog
from resurge.testing.calibrated_runner import CalibratedRunner
from resurge.testing.fault_injection import Strike, Striker
from resurge.testing.inline_runner import InlineRunner

NODES = 4
POSTS_PER_EPOCH = 5_000
WINDOWS_S = {"O1": (10, 5), "O2": (15, 5), "O3": (20, 5), "O4": (25, 5)}
"""An epoch has five seconds of posts, so that each costs about as much as the next one."""
INTERVAL_S = 3.0
KILL_AFTER_EPOCH = 10
ADD_AFTER_S = (10.0, 25.0)
UTILISATION, HEADROOM = 0.25, 0.2
"""Two of four nodes have room for about half of the queries."""


@dataclass(frozen=True)
class Demonstration:
    """What the demo found: wrong counts per query, rows lost and repeated against an undisturbed run."""

    wrong: dict[str, int]
    lost: int
    duplicated: int

    @property
    def passed(self) -> bool:
        """Whether every check held."""
        return not self.wrong and not self.lost and not self.duplicated


def job(epochs: int) -> Hashtags:
    """The 15 queries over generated posts."""
    return hashtags(_source(epochs), key_groups=1, windows_s=WINDOWS_S)


def _source(epochs: int) -> PostSource:
    return posts(total=epochs * POSTS_PER_EPOCH, posts_per_epoch=POSTS_PER_EPOCH, zipf=1.1, distinct=30_000)


def all_posts(epochs: int) -> pl.DataFrame:
    """Every post of the demo, read straight from the generator."""
    reader = _source(epochs).reader(None)  # type: ignore[arg-type]
    start, end = reader.initialOffset(), {"rows": epochs * POSTS_PER_EPOCH, "started_at": None}
    return pl.concat([reader.read_frames(split)[0] for split in reader.partitions(start, end)])


def undisturbed(epochs: int) -> dict[str, pl.DataFrame]:
    """The same job without failures, in this process."""
    run = job(epochs)
    with tempfile.TemporaryDirectory(prefix="resurge-demo-") as folder:
        run_until_done(
            Engine(run.topology, InlineRunner(1), RunOptions(folder, interval_s=0, back_pressure=False)), until_idle=True
        )
    return shown(run)


def demonstrate(epochs: int, log: Path, emit: Callable[[Event], None], progress: Callable[[str], None]) -> Demonstration:
    """Run, kill, recover, and check."""
    progress(f"starting a Spark cluster of {NODES} nodes on this machine")
    with EmbeddedCluster(NODES) as cluster, cluster_runner(cluster, "demo") as runner:
        rng = random.Random(4)
        strike = Strike(KILL_AFTER_EPOCH, 0.5, 2, ADD_AFTER_S)
        striker = Striker(cluster, [strike], lambda alive, count: rng.sample(sorted(alive), count))
        run = job(epochs)
        with TelemetryLog(log) as telemetry, tempfile.TemporaryDirectory(prefix="resurge-demo-") as folder:
            striker.telemetry = telemetry
            telemetry.listeners += [emit, striker.listen]
            options = RunOptions(folder, interval_s=INTERVAL_S, checkpoint_interval=6, back_pressure=False, headroom=HEADROOM)
            engine = Engine(run.topology, CalibratedRunner(runner, NODES, INTERVAL_S, UTILISATION), options, telemetry)
            progress("starting the queries")
            try:
                run_demo(engine, epochs)
            finally:
                striker.finish()
    progress("checking every query against an independent computation, and every row against an undisturbed run")
    return _checked(run, epochs)


def run_demo(engine: Engine, epochs: int) -> None:
    """All epochs, and then whatever is still on its way back."""
    engine.start()
    try:
        engine.run(epochs)
        engine.finish_recovery()
    except BaseException as error:
        engine.close(str(error) or type(error).__name__)
        raise
    engine.close()


def demonstrate_locally(epochs: int, log: Path, emit: Callable[[Event], None], progress: Callable[[str], None]) -> Demonstration:
    """The same job on the embedded default, `local[*]`, without failures."""
    progress("starting Spark on this machine")
    spark = open_session(LOCAL_MASTER, "demo")
    run = job(epochs)
    try:
        with TelemetryLog(log) as telemetry, tempfile.TemporaryDirectory(prefix="resurge-demo-") as folder:
            telemetry.listeners.append(emit)
            options = RunOptions(folder, interval_s=1.0, back_pressure=False)
            run_demo(Engine(run.topology, SparkRunner(spark), options, telemetry), epochs)
    finally:
        spark.stop()
    progress("checking every query against an independent computation, and every row against an undisturbed run")
    return _checked(run, epochs)


def _checked(run: Hashtags, epochs: int) -> Demonstration:
    tables = {name: sink.table() for name, sink in run.sinks.items() if isinstance(sink, MemorySink)}
    return Demonstration(differences(all_posts(epochs), tables, WINDOWS_S), *compare(shown(run), undisturbed(epochs)))
