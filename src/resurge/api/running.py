"""Run a topology from Python: `run` until it ends, `start` in the background. Both close what they opened."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from resurge.api.builder import TopologyBuilder
from resurge.api.handle import RunningJob
from resurge.errors import TopologyError
from resurge.model.durations import Duration, microseconds
from resurge.model.topology import Topology
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.gateway import pointing_to_log, running_context
from resurge.runtime.driver.options import CHECKPOINT_INTERVAL, RunOptions
from resurge.runtime.driver.session import LOCAL_MASTER
from resurge.runtime.embedded_cluster.runner import refuse_scale, runner_on, scaler_on
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
    checkpoint_interval: int | str = CHECKPOINT_INTERVAL,
    max_rows_per_epoch: int | None = None,
    strategy: str = "incremental",
    balance: str = "auto",
    scale: str | None = None,
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
    options = RunOptions(
        interval_s=interval_seconds(interval),
        checkpoint_interval=checkpoint_interval,
        max_rows_per_epoch=max_rows_per_epoch,
        strategy=strategy,
        balance=balance,
        scale=scale,
    )
    with _opened(topology, master, checkpoint, options, telemetry) as engine, pointing_to_log():
        run_until_done(engine, epochs=epochs, until_idle=until_idle, drain=drain)


def start(  # noqa: PLR0913 (all but the topology are options)
    topology: Topology | TopologyBuilder,
    *,
    master: str = LOCAL_MASTER,
    checkpoint: str | Path | None = None,
    interval: Duration = "1s",
    epochs: int | None = None,
    until_idle: bool = False,
    drain: bool = False,
    checkpoint_interval: int | str = CHECKPOINT_INTERVAL,
    max_rows_per_epoch: int | None = None,
    strategy: str = "incremental",
    balance: str = "auto",
    scale: str | None = None,
    telemetry: str | Path | None = None,
) -> RunningJob:
    """Run a topology in the background, with the options of `run`, and return a handle on it at once.

    >>> import resurge
    >>> sink = resurge.MemorySink()
    >>> job = resurge.TopologyBuilder("demo")
    >>> posts = job.source("posts", resurge.posts(posts_per_epoch=500), event_time="time")
    >>> posts.aggregate("active", key="user", n=resurge.count()).query(sink=sink)
    >>> with resurge.start(job, master="local[2]", interval="100ms") as running:
    ...     reached = running.await_epochs(3)
    >>> reached.epoch >= 3, running.status().state
    (True, 'finished')
    """
    options = RunOptions(
        interval_s=interval_seconds(interval),
        checkpoint_interval=checkpoint_interval,
        max_rows_per_epoch=max_rows_per_epoch,
        strategy=strategy,
        balance=balance,
        scale=scale,
    )
    with ExitStack() as opening:
        engine = opening.enter_context(_opened(topology, master, checkpoint, options, telemetry))
        opened = opening.pop_all()

    def work() -> None:
        with pointing_to_log():
            run_until_done(engine, epochs=epochs, until_idle=until_idle, drain=drain)

    return RunningJob(engine, work, opened.close)


@contextmanager
def _opened(
    topology: Topology | TopologyBuilder,
    master: str,
    checkpoint: str | Path | None,
    options: RunOptions,
    telemetry: str | Path | None,
) -> Iterator[Engine]:
    """An engine with a Spark session, a place for the job and a log; what was opened for it is closed afterwards."""
    built = topology.build() if isinstance(topology, TopologyBuilder) else topology
    if not isinstance(built, Topology):
        raise TopologyError(f"run got {topology!r}; expected a Topology or a TopologyBuilder")
    with ExitStack() as opened:
        url = str(checkpoint) if checkpoint is not None else opened.enter_context(TemporaryDirectory(prefix="resurge-job-"))
        refuse_scale(master, options)
        is_ours = running_context() is None
        runner = runner_on(master, f"resurge {built.name}", _spark_log(checkpoint))
        if is_ours:
            opened.callback(runner.spark.stop)
        log = opened.enter_context(TelemetryLog(Path(telemetry) if telemetry is not None else None))
        scaler = None if options.scale is None else scaler_on(runner)
        yield Engine(built, runner, replace(options, checkpoint_url=url), log, scaler)


def interval_seconds(interval: Duration) -> float:
    """The time between epochs in seconds; a plain number, or one in quotes, is in seconds.

    >>> interval_seconds("500ms"), interval_seconds("0")
    (0.5, 0.0)
    """
    if isinstance(interval, str) and interval.strip().replace(".", "", 1).isdigit():
        interval = float(interval)
    return microseconds(interval, "the interval") / 1_000_000


def _spark_log(checkpoint: str | Path | None) -> Path | None:
    """Where Spark's warnings and errors go: beside the checkpoints, where that is a folder of this machine."""
    if checkpoint is None or "://" in str(checkpoint).removeprefix("file://"):
        return None
    folder = Path(str(checkpoint).removeprefix("file://"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None  # the job itself says what is wrong with its folder
    return folder / "spark.log"
