"""INCREMENTAL's figures 18 to 20 on real Spark: what buffering and checkpoints cost when nothing fails."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from resurge.connectors.posts import PostSource, posts
from resurge.connectors.sinks import DiscardSink
from resurge.experiments.hashtags import hashtags
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.session import LOCAL_MASTER, open_session
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.telemetry.events import Event
from resurge.telemetry.log import TelemetryLog, read_events

KEY_GROUPS = 2
INTERVALS = (1, 2, 5, 10, 20)
USUAL_INTERVAL = 10
EPOCHS = 24
POSTS_PER_EPOCH = 20_000
STEADY_POSTS_PER_SECOND = 2_000.0
STEADY_INTERVAL_S = 1.0


@dataclass(frozen=True)
class Configuration:
    """What is switched on: a checkpoint every so many epochs, and buffers always or only after a failure."""

    checkpoint_interval: int
    always_buffers: bool = False

    @property
    def name(self) -> str:
        """For files and legends."""
        return f"checkpoint-every-{self.checkpoint_interval}{'-buffers-always' if self.always_buffers else ''}"


def configurations() -> list[Configuration]:
    """Buffering at the usual checkpoint interval, and all intervals without."""
    return [Configuration(USUAL_INTERVAL, always_buffers=True), *(Configuration(interval) for interval in INTERVALS)]


def measure(out: Path, progress: Callable[[str], None]) -> dict[Configuration, tuple[Sequence[Event], Sequence[Event]]]:
    """For each configuration the telemetry at full speed, and at a steady rate that every one of them can take."""
    out.mkdir(parents=True, exist_ok=True)
    spark = open_session(LOCAL_MASTER, "overhead")
    try:
        runner = SparkRunner(spark)
        # The first run also warms Spark, so that it is made once for nothing.
        _run(runner, Configuration(USUAL_INTERVAL), _fast(), 0.0, out / "warm-up.jsonl")
        (out / "warm-up.jsonl").unlink()
        found: dict[Configuration, tuple[Sequence[Event], Sequence[Event]]] = {}
        for configuration in configurations():
            progress(f"overhead: {configuration.name}")
            found[configuration] = (
                _run(runner, configuration, _fast(), 0.0, out / f"overhead-{configuration.name}-fast.jsonl"),
                _run(runner, configuration, _steady(), STEADY_INTERVAL_S, out / f"overhead-{configuration.name}-steady.jsonl"),
            )
        return found
    finally:
        spark.stop()


def _fast() -> PostSource:
    return posts(total=EPOCHS * POSTS_PER_EPOCH, posts_per_epoch=POSTS_PER_EPOCH)


def _steady() -> PostSource:
    return posts(STEADY_POSTS_PER_SECOND)


def _run(runner: SparkRunner, configuration: Configuration, source: PostSource, interval_s: float, log: Path) -> list[Event]:
    log.unlink(missing_ok=True)
    job = hashtags(source, key_groups=KEY_GROUPS, make_sink=lambda name: DiscardSink())
    with TelemetryLog(log) as telemetry, tempfile.TemporaryDirectory(prefix="resurge-overhead-") as folder:
        options = RunOptions(
            folder,
            interval_s=interval_s,
            checkpoint_interval=configuration.checkpoint_interval,
            always_buffers=configuration.always_buffers,
            # Chains have no streams between their operators that could be buffered.
            chained=False,
        )
        engine = Engine(job.topology, runner, options, telemetry)
        run_until_done(engine, epochs=EPOCHS)
    return list(read_events(log))
