"""INCREMENTAL's figures 10 to 15 on a real cluster: nodes die, replacements come one by one, strategies are compared."""

import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from resurge.connectors.posts import posts
from resurge.connectors.sinks import DiscardSink
from resurge.experiments.chaos import arena, replenish
from resurge.experiments.hashtags import Hashtags, hashtags
from resurge.experiments.traces import arrival_times_s, drawn_arrivals_s
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.studies.failure_cases import FailureCase
from resurge.studies.figures import nodes_to_kill
from resurge.telemetry.events import EpochFinished, Event, NodesKilled
from resurge.telemetry.log import TelemetryLog, read_events
from resurge.telemetry.recovery_metrics import AVAILABLE_BELOW
from resurge.testing.calibrated_runner import CalibratedRunner
from resurge.testing.fault_injection import Strike, Striker

STUDY_WINDOWS_S = {"O1": (8, 2), "O2": (10, 2), "O3": (12, 2), "O4": (14, 2)}
"""All windows slide alike, so that each epoch costs about as much as the next one and latencies can be compared."""
RETENTION = "10s"
CALIBRATING_EPOCHS = 12


@dataclass(frozen=True)
class FailureStudy:
    """What all runs of a study share.

    A node works `utilisation` of its time before the failure, and may be filled up to `headroom` of it afterwards. An epoch
    takes at most `longest` intervals of input, so that what cannot keep up does not gain by ever larger epochs.
    """

    nodes: int = 10
    seed: int = 5
    arrivals_s: tuple[float, ...] = ()
    posts_per_second: float = 20_000.0
    distinct_tags: int = 30_000
    interval_s: float = 5.0
    longest: float = 1.1
    checkpoint_interval: int = 3
    kill_after_epoch: int = 10
    watch_s: float = 120.0
    settled_epochs: int = 5
    utilisation: float = 0.2
    headroom: float = 0.25

    def job(self) -> Hashtags:
        """The 15 queries over posts that come at a steady rate."""
        source = posts(self.posts_per_second, zipf=1.1, distinct=self.distinct_tags)
        return hashtags(
            source, key_groups=1, make_sink=lambda name: DiscardSink(), windows_s=STUDY_WINDOWS_S, retention=RETENTION
        )

    def options(self, folder: str, strategy: str) -> RunOptions:
        """How the job is run."""
        return RunOptions(
            folder,
            interval_s=self.interval_s,
            max_rows_per_epoch=round(self.longest * self.posts_per_second * self.interval_s),
            checkpoint_interval=self.checkpoint_interval,
            strategy=strategy,
            headroom=self.headroom,
            # Strategies of recovery are compared, and nothing else.
            balance="off",
        )

    @property
    def longest_s(self) -> float:
        """For how long after the failure runs are compared."""
        return max(self.arrivals_s, default=0.0) + self.watch_s

    def length_s(self, case: FailureCase) -> float:
        """How long a run is watched after the first kill, unless all is well before: the best case as long as the others."""
        return max(*case.arrivals_s, case.gap_s * case.kill, self.longest_s - self.watch_s) + self.watch_s


def arrivals(kill: int, seed: int, from_s: float, to_s: float, file: Path | None = None) -> tuple[float, ...]:
    """Replacements one by one, as cloud machines came in the paper (2 to 6 minutes), scaled; or as those of a file came."""
    rng = random.Random(seed)
    if file is None:
        return tuple(sorted(rng.uniform(from_s, to_s) for _ in range(kill)))
    known = arrival_times_s(file)
    return tuple(moment * to_s / max(known) for moment in drawn_arrivals_s(known, kill, rng))


@dataclass
class StudyCluster:
    """A cluster on which one run after another takes place; its nodes' speed is set once, from what the job costs."""

    study: FailureStudy
    cluster: EmbeddedCluster
    inner: SparkRunner
    runner: CalibratedRunner
    progress: Callable[[str], None]

    def calibrate(self) -> None:
        """Run the job undisturbed until its cost is known."""
        self.progress("measuring what the queries cost")
        with tempfile.TemporaryDirectory(prefix="resurge-study-") as folder:
            engine = Engine(self.study.job().topology, self.runner, self.study.options(folder, "incremental"))
            try:
                engine.start()
                engine.run(CALIBRATING_EPOCHS)
            finally:
                engine.close("calibrated")
            self.runner.calibrate(sum(engine.state.costs.values()) + engine.state.reading_cost)

    def play(self, case: FailureCase, log: Path) -> list[Event]:
        """One run; everything that happened is in its telemetry."""
        log.unlink(missing_ok=True)
        replenish(self.cluster, self.inner, self.study.nodes)
        with TelemetryLog(log) as telemetry, tempfile.TemporaryDirectory(prefix="resurge-study-") as folder:
            engine = Engine(self.study.job().topology, self.runner, self.study.options(folder, case.strategy), telemetry)
            striker = Striker(self.cluster, self._strikes(case), self._chooser(engine, case), telemetry)
            watch = Watch(engine, case.kill, self.study.length_s(case), self.study.settled_epochs)
            telemetry.listeners += [striker.listen, watch.listen]
            try:
                engine.start()
                engine.run()
            finally:
                watch.end()
                striker.finish()
                engine.close("the study is over")
        return list(read_events(log))

    def _strikes(self, case: FailureCase) -> list[Strike]:
        after, delay_s = self.study.kill_after_epoch, self.study.interval_s / 4
        if not case.gap_s:
            return [Strike(after, delay_s, case.kill, case.arrivals_s)]
        first = Strike(after, delay_s, 1, case.arrivals_s)
        return [first, *(Strike(after, delay_s + case.gap_s * turn, 1) for turn in range(1, case.kill))]

    def _chooser(self, engine: Engine, case: FailureCase) -> Callable[[list[str], int], list[str]]:
        chosen: list[str] = []

        def choose(alive: list[str], count: int) -> list[str]:
            # All nodes_to_kill are chosen at the first kill, so that those of later ones do not depend on what was recovered where.
            if not chosen:
                names = self.cluster.executor_nodes(self.inner.spark)
                chosen.extend(names[node] for node in nodes_to_kill(engine.recovery, case, self.study.seed))
            return [chosen.pop(0) for _ in range(min(count, len(chosen)))]

        return choose


@dataclass
class Watch:
    """Stops a run a while after the first kill, or when all queries have had their usual latency for some epochs."""

    engine: Engine
    kill: int
    length_s: float
    settled_epochs: int
    usual_s: list[float] = field(default_factory=list)
    timer: threading.Timer | None = None
    settled: int = 0
    killed: int = 0

    def end(self) -> None:
        """Nobody watches any more."""
        if self.timer is not None:
            self.timer.cancel()

    def listen(self, event: Event) -> None:
        """Look at what happened."""
        if isinstance(event, NodesKilled) and self.timer is None:
            self.timer = threading.Timer(self.length_s, self.engine.stop)
            self.timer.daemon = True
            self.timer.start()
        if isinstance(event, NodesKilled):
            self.killed += len(event.nodes)
        if isinstance(event, EpochFinished):
            self._epoch(event)

    def _epoch(self, event: EpochFinished) -> None:
        latency_s = event.at_s - event.arrival_s
        if self.timer is None:
            self.usual_s.append(latency_s)
            return
        is_all = self.killed >= self.kill and self.engine.recovery.all_live
        is_settled = is_all and latency_s < AVAILABLE_BELOW * median(self.usual_s)
        self.settled = self.settled + 1 if is_settled else 0
        if self.settled >= self.settled_epochs:
            self.engine.stop()


@contextmanager
def study_cluster(study: FailureStudy, progress: Callable[[str], None]) -> Iterator[StudyCluster]:
    """A cluster for a study."""
    progress(f"starting {study.nodes} nodes")
    with arena(study.nodes) as (cluster, inner):
        runner = CalibratedRunner(inner, study.nodes, study.interval_s, study.utilisation, measured_jobs=None)
        made = StudyCluster(study, cluster, inner, runner, progress)
        made.calibrate()
        yield made


def run_study(
    study: FailureStudy, figures: Mapping[str, Sequence[FailureCase]], out: Path, progress: Callable[[str], None]
) -> Iterator[tuple[str, str, Sequence[Event]]]:
    """All cases of all figures on one cluster, one after another: figure, case and what happened, as soon as it is over."""
    out.mkdir(parents=True, exist_ok=True)
    played = [(figure, case) for figure, cases in figures.items() for case in cases]
    with study_cluster(study, progress) as made:
        for number, (figure, case) in enumerate(played, 1):
            progress(f"{figure}, {case.name}: {number} of {len(played)}, a few minutes each")
            yield figure, case.name, made.play(case, out / f"{figure}-{case.name}.jsonl")
