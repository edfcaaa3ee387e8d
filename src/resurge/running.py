"""Run a topology from Python: `resurge.run` opens what it needs and closes what it opened."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from resurge.builder import TopologyBuilder
from resurge.errors import TopologyError
from resurge.model.durations import Duration, microseconds
from resurge.model.topology import Topology
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.session import LOCAL_MASTER, open_session
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.telemetry.log import TelemetryLog


def run(  # noqa: PLR0913 (all but the topology are options)
    topology: Topology | TopologyBuilder,
    *,
    master: str = LOCAL_MASTER,
    checkpoint: str | Path | None = None,
    interval: Duration = "1s",
    epochs: int | None = None,
    until_idle: bool = False,
    drain: bool = False,
    checkpoint_interval: int = 10,
    max_rows_per_epoch: int | None = None,
    strategy: str = "incremental",
    telemetry: str | Path | None = None,
) -> None:
    """Run a topology until a number of epochs, until there is no input left, or until interrupted.

    With `checkpoint`, the next run with the same place goes on where this one ended; without, nothing is left of the job but
    its output. A Spark session that runs already is used and left running.

    >>> import polars as pl, resurge
    >>> sink = resurge.MemorySink()
    >>> job = resurge.TopologyBuilder("demo")
    >>> posts = job.source("posts", resurge.posts(total=1000, posts_per_epoch=500), event_time="time")
    >>> posts.window("busy", "10s", key="user", emit="final", n=resurge.count()).query(sink=sink)
    >>> resurge.run(job, master="local[2]", until_idle=True, drain=True)
    >>> sink.table()["n"].sum()
    1000
    """
    built = topology.build() if isinstance(topology, TopologyBuilder) else topology
    if not isinstance(built, Topology):
        raise TopologyError(f"run got {topology!r}; expected a Topology or a TopologyBuilder")
    with ExitStack() as opened:
        options = RunOptions(
            str(checkpoint) if checkpoint is not None else opened.enter_context(TemporaryDirectory(prefix="resurge-job-")),
            interval_s=interval_seconds(interval),
            checkpoint_interval=checkpoint_interval,
            max_rows_per_epoch=max_rows_per_epoch,
            strategy=strategy,
        )
        found = _running_session()
        spark = open_session(master, f"resurge {built.name}")
        if not found:
            opened.callback(spark.stop)
        log = opened.enter_context(TelemetryLog(Path(telemetry) if telemetry is not None else None))
        run_until_done(Engine(built, SparkRunner(spark), options, log), epochs=epochs, until_idle=until_idle, drain=drain)


def interval_seconds(interval: Duration) -> float:
    """The time between epochs in seconds; a plain number, or one in quotes, is in seconds.

    >>> interval_seconds("500ms"), interval_seconds("0")
    (0.5, 0.0)
    """
    if isinstance(interval, str) and interval.strip().replace(".", "", 1).isdigit():
        interval = float(interval)
    return microseconds(interval, "the interval") / 1_000_000


def _running_session() -> bool:
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None
