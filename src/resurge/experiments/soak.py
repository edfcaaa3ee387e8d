"""A long run on a real cluster with kills and joins; memory, descriptors, threads and files must stay flat."""

import contextlib
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from resurge.connectors.posts import posts
from resurge.connectors.sinks import DiscardSink
from resurge.experiments.hashtags import hashtags
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.runtime.embedded_cluster.runner import cluster_runner
from resurge.telemetry.events import EpochFinished, Event
from resurge.telemetry.log import TelemetryLog
from resurge.testing.fault_injection import Strike, Striker

NODES = 3
POSTS_PER_S = 1_000
INTERVAL_S = 2.0
WARM_UP_S = 600.0
SAMPLE_S = 10.0
STRIKE_EVERY_EPOCHS = 60
REPLACEMENT_AFTER_S = 20.0
KINDS = {
    "org.apache.spark.deploy.master.Master": "master JVM",
    "org.apache.spark.deploy.worker.Worker": "worker JVM",
    "CoarseGrainedExecutorBackend": "executor JVM",
    "org.apache.spark.deploy.SparkSubmit": "driver JVM",
    "resurge.runtime.worker.daemon": "Python worker",
}
# What may come on top of a tenth before a series counts as growing: collectors and caches breathe.
ALLOWED = {"memory_bytes": 48 * 2**20, "descriptors": 16, "threads": 8, "files": 60, "bytes": 16 * 2**20}
GROWTH = 1.1

Sample = dict[str, float]
"""Figures at a moment: "<kind>/<figure>" of the largest process of a kind, "<folder>/files" and "<folder>/bytes"."""


@dataclass
class Watch:
    """Takes samples in a thread of its own until it is stopped."""

    folders: Mapping[str, Path]
    samples: list[Sample] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Sample at a steady pace."""
        while not self.stopped.wait(SAMPLE_S):
            self.samples.append(self.sample())

    def sample(self) -> Sample:
        """All figures now."""
        found: Sample = {"at_s": round(time.monotonic() - self.began_s, 1)}
        for process in (me := psutil.Process(), *me.children(recursive=True)):
            # A process may end while it is looked at.
            with contextlib.suppress(psutil.Error):
                kind = "driver" if process.pid == me.pid else kind_of(process.cmdline())
                if kind is not None:
                    _take_largest(found, kind, process)
        for name, folder in self.folders.items():
            files, size = _contents(folder)
            found[f"{name}/files"], found[f"{name}/bytes"] = files, size
        return found


def kind_of(command: Sequence[str]) -> str | None:
    """What a process of a cluster is, by its command line; None for one that is none of ours.

    >>> kind_of(["java", "org.apache.spark.deploy.worker.Worker", "spark://127.0.0.1:7077"])
    'worker JVM'
    """
    return next((kind for mark, kind in KINDS.items() if any(mark in word for word in command)), None)


def _take_largest(found: Sample, kind: str, process: psutil.Process) -> None:
    with process.oneshot():
        figures = (
            ("memory_bytes", process.memory_info().rss),
            ("descriptors", process.num_fds()),
            ("threads", process.num_threads()),
        )
    for name, value in figures:
        found[f"{kind}/{name}"] = max(value, found.get(f"{kind}/{name}", 0))


def _contents(folder: Path) -> tuple[int, int]:
    files = size = 0
    for path in folder.rglob("*"):
        # Files come and go while they are counted.
        with contextlib.suppress(OSError):
            if path.is_file():
                files, size = files + 1, size + path.stat().st_size
    return files, size


def growing(samples: Sequence[Sample], warm_up_s: float = WARM_UP_S) -> dict[str, tuple[float, float]]:
    """The series that grew after the warm-up: their medians over the first and over the last quarter of the rest."""
    rest = [sample for sample in samples if sample["at_s"] >= warm_up_s]
    quarter = len(rest) // 4
    if not quarter:
        return {}
    found = {}
    for name in sorted({name for sample in rest for name in sample if name != "at_s"}):
        first, last = (statistics.median(sample.get(name, 0.0) for sample in part) for part in (rest[:quarter], rest[-quarter:]))
        if last > GROWTH * first + ALLOWED[name.rpartition("/")[2]]:
            found[name] = (first, last)
    return found


def soak(hours: float, seed: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run for some hours; every two minutes one or two nodes are killed and replaced."""
    epochs = int(hours * 3600 / INTERVAL_S)
    rng = random.Random(seed)
    strikes = [
        Strike(epoch, rng.uniform(0, INTERVAL_S), rng.choice((1, 1, 2)), (REPLACEMENT_AFTER_S, REPLACEMENT_AFTER_S + 5))
        for epoch in range(STRIKE_EVERY_EPOCHS, epochs - STRIKE_EVERY_EPOCHS, STRIKE_EVERY_EPOCHS)
    ]
    tell(f"starting a Spark cluster of {NODES} nodes")
    with (
        tempfile.TemporaryDirectory(prefix="resurge-soak-") as folder,
        EmbeddedCluster(NODES) as cluster,
        cluster_runner(cluster, "soak") as runner,
    ):
        job, local, log = (Path(folder) / name for name in ("job", "local", "telemetry"))
        for made in (job, local, log):
            made.mkdir()
        watch = Watch({"durable store": job, "local stores": local, "telemetry": log, "cluster": cluster.folder})
        # Beyond the nodes it began with, a cluster keeps none: the second replacement comes only after a double loss.
        striker = Striker(cluster, strikes, lambda alive, count: rng.sample(sorted(alive), max(0, len(alive) - NODES + count)))
        run = hashtags(posts(POSTS_PER_S, distinct=30_000), key_groups=64, make_sink=lambda name: DiscardSink())
        watching = threading.Thread(target=watch.run, daemon=True)
        with TelemetryLog(log / "events.jsonl") as telemetry:
            ends = _Ends(time.monotonic() + hours * 3600, watch, tell)
            telemetry.listeners += [striker.listen, ends.listen]
            options = RunOptions(str(job), interval_s=INTERVAL_S, local_root=str(local))
            engine = Engine(run.topology, runner, options, telemetry)
            ends.stop = engine.stop
            watching.start()
            try:
                run_until_done(engine)
            finally:
                striker.finish()
                watch.stopped.set()
                watching.join()
    grown = growing(watch.samples)
    return {
        "hours": hours,
        "epochs": ends.epochs,
        "rows": ends.rows,
        "nodes_killed": striker.kills,
        "grew": {name: {"first": first, "last": last} for name, (first, last) in grown.items()},
        "is_flat": not grown,
        "samples": watch.samples,
    }


@dataclass
class _Ends:
    """Counts epochs, tells of progress each minute, and stops the job when its time is over."""

    deadline_s: float
    watch: Watch
    tell: Callable[[str], None]
    stop: Callable[[], None] = lambda: None
    epochs: int = 0
    rows: int = 0
    told_s: float = 0.0

    def listen(self, event: Event) -> None:
        """A telemetry listener."""
        now_s = time.monotonic()
        if isinstance(event, EpochFinished):
            self.epochs, self.rows = self.epochs + 1, self.rows + event.rows_read
            if now_s - self.told_s > 60:
                self.told_s = now_s
                self.tell(f"{(now_s - self.watch.began_s) / 60:.0f} min: epoch {event.epoch}, {self.rows:,} rows")
        if now_s > self.deadline_s:
            self.stop()
