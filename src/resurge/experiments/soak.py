"""A long run on a real cluster with kills and joins; memory, descriptors, threads and files must stay flat."""

import contextlib
import random
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
from resurge.errors import JobError
from resurge.experiments.hashtags import hashtags
from resurge.experiments.soak_judgement import LEAST_SAMPLES, Sample, judged, noticed_per_hour, warm_up_s
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.runtime.embedded_cluster.runner import cluster_runner
from resurge.runtime.embedded_cluster.standalone import NODE_VARIABLE
from resurge.telemetry.events import EpochFinished, Event
from resurge.telemetry.log import TelemetryLog
from resurge.testing.fault_injection import Strike, Striker

NODES = 3
POSTS_PER_S = 1_000
INTERVAL_S = 2.0
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
# Never killed: a process that leaks must live for long enough to show it.
SURVIVOR = "node-1"


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
                    found[f"{kind}/processes"] = found.get(f"{kind}/processes", 0) + 1
                    if process.pid == me.pid or process.environ().get(NODE_VARIABLE, SURVIVOR) == SURVIVOR:
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
        memory = process.memory_info()
        # Segments of the local store that are mapped are files, and counted as such.
        figures = (
            ("memory_bytes", memory.rss - memory.shared),
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


def soak(hours: float, seed: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run for some hours; every two minutes one or two nodes are killed and replaced, one lives to the end."""
    epochs = int(hours * 3600 / INTERVAL_S)
    rng = random.Random(seed)
    strikes = [_strike(epoch, rng) for epoch in range(STRIKE_EVERY_EPOCHS, epochs - STRIKE_EVERY_EPOCHS, STRIKE_EVERY_EPOCHS)]
    progress(f"starting a Spark cluster of {NODES} nodes")
    with (
        tempfile.TemporaryDirectory(prefix="resurge-soak-") as folder,
        EmbeddedCluster(NODES) as cluster,
        cluster_runner(cluster, "soak") as runner,
    ):
        job, local, log = (Path(folder) / name for name in ("job", "local", "telemetry"))
        for made in (job, local, log):
            made.mkdir()
        folders = {"journal": job / "journal", "durable store": job, "local stores": local, "telemetry": log}
        watch = Watch({**folders, "cluster": cluster.folder})
        striker = Striker(cluster, strikes, lambda alive, count: victims(alive, count, rng))
        run = hashtags(posts(POSTS_PER_S, distinct=30_000), key_groups=64, make_sink=lambda name: DiscardSink())
        watching = threading.Thread(target=watch.run, daemon=True)
        with TelemetryLog(log / "events.jsonl") as telemetry:
            ends = _Ends(time.monotonic() + hours * 3600, watch, progress)
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
    counts = {"hours": hours, "epochs": ends.epochs, "rows": ends.rows, "nodes_killed": striker.kills}
    return counts | verdict(watch.samples, warm_up_s(hours))


def _strike(epoch: int, rng: random.Random) -> Strike:
    # The node that lives to the end has everything once before memory is judged: an allocator keeps what it once had.
    delay_s, count = rng.uniform(0, INTERVAL_S), 2 if epoch == STRIKE_EVERY_EPOCHS else rng.choice((1, 1, 2))
    return Strike(epoch, delay_s, count, tuple(REPLACEMENT_AFTER_S + 5 * index for index in range(count)))


def victims(alive: Sequence[str], count: int, rng: random.Random) -> list[str]:
    """Whom to kill, so that a cluster keeps no more nodes than it began with: as many replacements come as are to be killed."""
    others = sorted(node for node in alive if node != SURVIVOR)
    return rng.sample(others, min(len(others), max(0, len(alive) - NODES + count)))


def verdict(samples: Sequence[Sample], after_s: float) -> dict[str, Any]:
    """What a result file says: the ends of every series, what grew, how small a leak would have been noticed."""
    ends = judged(samples, after_s)
    if not ends:
        raise JobError(f"a soak of {len(samples)} samples says nothing; expected at least {LEAST_SAMPLES} after the warm-up")
    told = {name: {"first": found.first, "last": found.last} for name, found in ends.items()}
    return {
        "warm_up_s": after_s,
        "ends": told,
        "grew": {name: told[name] for name, found in ends.items() if found.has_grown},
        "is_flat": not any(found.has_grown for found in ends.values()),
        "noticed_per_hour": noticed_per_hour(ends, samples, after_s),
        "samples": list(samples),
    }


@dataclass
class _Ends:
    """Counts epochs, tells of progress each minute, and stops the job when its time is over."""

    deadline_s: float
    watch: Watch
    progress: Callable[[str], None]
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
                self.progress(f"{(now_s - self.watch.began_s) / 60:.0f} min: epoch {event.epoch}, {self.rows:,} rows")
        if now_s > self.deadline_s:
            self.stop()
