"""INCREMENTAL's figures 10 to 15 on a real cluster: nodes die, replacements come one by one, strategies are compared."""

import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from resurge.connectors.posts import posts
from resurge.connectors.sinks import DiscardSink
from resurge.experiments.chaos import arena, replenish
from resurge.experiments.failures import Strike, Striker
from resurge.experiments.hashtags import Hashtags, hashtags
from resurge.experiments.pacing import CalibratedRunner
from resurge.model.scenes import DOWNSTREAM, UPSTREAM, Scene
from resurge.runtime.driver.cluster import EmbeddedCluster
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.simulator.faults import drawn_arrivals_s
from resurge.staging import victims
from resurge.telemetry.events import Event, NodesKilled
from resurge.telemetry.log import TelemetryLog, read_events
from resurge.traces import arrival_times_s

BEST_CASE = "best-case"
STRATEGIES = ("incremental", "blocking", "eager", "source-replay", BEST_CASE)

STUDY_WINDOWS_S = {"O1": (8, 2), "O2": (10, 2), "O3": (12, 2), "O4": (14, 2)}
"""All windows slide alike, so that each epoch costs about as much as the next one and latencies can be compared."""
RETENTION = "10s"
CALIBRATING_EPOCHS = 12


@dataclass(frozen=True)
class FailureStudy:
    """What all runs of a study share.

    A node works `utilisation` of its time before the failure, and may be filled up to `headroom` of it afterwards.
    """

    nodes: int = 10
    kill: int = 8
    arrivals_s: tuple[float, ...] = ()
    seed: int = 5
    gap_s: float = 0.0
    posts_per_second: float = 4000.0
    distinct_tags: int = 30_000
    interval_s: float = 5.0
    checkpoint_interval: int = 3
    kill_after_epoch: int = 10
    watch_s: float = 50.0
    utilisation: float = 0.18
    headroom: float = 0.225
    early_s: float = 1.0
    chosen: tuple[str, ...] = field(default=STRATEGIES)

    def strategies(self) -> list[Scene]:
        """Figure 12, with the strategies of figures 10 and 11: the same failure for everyone."""
        early = (self.early_s,) * self.kill
        return [
            Scene(name, _strategy(name), self.kill, early if name == BEST_CASE else self.arrivals_s, gap_s=self.gap_s)
            for name in self.chosen
        ]

    def places(self) -> list[Scene]:
        """Figures 13 and 14: few nodes, upstream or downstream in the topology, incremental and blocking."""
        kill = min(2, self.nodes - 1)
        return [
            Scene(f"{name}-{place}", name, kill, self.arrivals_s[-kill:], place)
            for place in (UPSTREAM, DOWNSTREAM)
            for name in ("incremental", "blocking")
        ]

    def kills(self) -> list[Scene]:
        """Figure 15: half as many nodes, and all of them, from the upper end of the topology and from the lower."""
        return [
            Scene(f"{kill}-{place}", "incremental", kill, self.arrivals_s[:kill], place)
            for place in (UPSTREAM, DOWNSTREAM)
            for kill in (max(1, self.kill // 2), self.kill)
        ]

    def job(self) -> Hashtags:
        """The 15 queries over posts that come at a steady rate."""
        source = posts(self.posts_per_second, zipf=1.1, distinct=self.distinct_tags)
        return hashtags(
            source, key_groups=1, make_sink=lambda name: DiscardSink(), windows_s=STUDY_WINDOWS_S, retention=RETENTION
        )

    def length_s(self, scene: Scene) -> float:
        """How long a run is watched after the first kill: the best case as long as the others."""
        return max((*scene.arrivals_s, *self.arrivals_s, scene.gap_s * scene.kill), default=0.0) + self.watch_s


def _strategy(name: str) -> str:
    return "incremental" if name == BEST_CASE else name


def arrivals(kill: int, seed: int, from_s: float, to_s: float, file: Path | None = None) -> tuple[float, ...]:
    """Replacements one by one, as cloud machines came in the paper (2 to 6 minutes), scaled; or as those of a file came."""
    rng = random.Random(seed)
    if file is None:
        return tuple(sorted(rng.uniform(from_s, to_s) for _ in range(kill)))
    known = arrival_times_s(file)
    return tuple(moment * to_s / max(known) for moment in drawn_arrivals_s(known, kill, rng))


@dataclass
class Stage:
    """A cluster on which one run after another takes place; its nodes' speed is set once, from what the job costs."""

    study: FailureStudy
    cluster: EmbeddedCluster
    inner: SparkRunner
    runner: CalibratedRunner
    tell: Callable[[str], None]

    def calibrate(self) -> None:
        """Run the job undisturbed until its cost is known."""
        self.tell("measuring what the queries cost")
        with tempfile.TemporaryDirectory(prefix="resurge-study-") as folder:
            engine = Engine(self.study.job().topology, self.runner, self._options(folder, "incremental"))
            try:
                engine.start()
                engine.run(CALIBRATING_EPOCHS)
            finally:
                engine.close("calibrated")
            self.runner.calibrate(sum(engine.membership.costs.values()) + engine.membership.reading_cost)

    def play(self, scene: Scene, log: Path) -> list[Event]:
        """One run; everything that happened is in its telemetry."""
        log.unlink(missing_ok=True)
        self.tell(f"{scene.name}: waiting for {self.study.nodes} nodes")
        replenish(self.cluster, self.inner, self.study.nodes)
        self.tell(f"{scene.name}: running")
        with TelemetryLog(log) as telemetry, tempfile.TemporaryDirectory(prefix="resurge-study-") as folder:
            engine = Engine(self.study.job().topology, self.runner, self._options(folder, scene.strategy), telemetry)
            striker = Striker(self.cluster, self._strikes(scene), self._chooser(engine, scene), telemetry)
            telemetry.listeners += [striker.listen, _stop_after(engine, self.study.length_s(scene))]
            try:
                engine.start()
                engine.run()
            finally:
                striker.finish()
                engine.close("the study is over")
        return list(read_events(log))

    def _options(self, folder: str, strategy: str) -> RunOptions:
        study = self.study
        return RunOptions(
            folder,
            interval_s=study.interval_s,
            checkpoint_interval=study.checkpoint_interval,
            strategy=strategy,
            headroom=study.headroom,
        )

    def _strikes(self, scene: Scene) -> list[Strike]:
        after, delay_s = self.study.kill_after_epoch, self.study.interval_s / 4
        if not scene.gap_s:
            return [Strike(after, delay_s, scene.kill, scene.arrivals_s)]
        first = Strike(after, delay_s, 1, scene.arrivals_s)
        return [first, *(Strike(after, delay_s + scene.gap_s * turn, 1) for turn in range(1, scene.kill))]

    def _chooser(self, engine: Engine, scene: Scene) -> Callable[[list[str], int], list[str]]:
        chosen: list[str] = []

        def choose(alive: list[str], count: int) -> list[str]:
            # All victims are chosen at the first kill, so that those of later ones do not depend on what was recovered where.
            if not chosen:
                names = self.cluster.executor_nodes(self.inner.spark)
                chosen.extend(names[node] for node in victims(engine.facts, scene, self.study.seed))
            return [chosen.pop(0) for _ in range(min(count, len(chosen)))]

        return choose


def _stop_after(engine: Engine, length_s: float) -> Callable[[Event], None]:
    """Stop a while after the first kill."""
    timers: list[threading.Timer] = []

    def listen(event: Event) -> None:
        if isinstance(event, NodesKilled) and not timers:
            timers.append(threading.Timer(length_s, engine.stop))
            timers[0].daemon = True
            timers[0].start()

    return listen


@contextmanager
def stage(study: FailureStudy, tell: Callable[[str], None]) -> Iterator[Stage]:
    """A cluster for a study."""
    tell(f"starting {study.nodes} nodes")
    with arena(study.nodes) as (cluster, inner):
        runner = CalibratedRunner(inner, study.nodes, study.interval_s, study.utilisation, measured_jobs=None)
        made = Stage(study, cluster, inner, runner, tell)
        made.calibrate()
        yield made


def run_study(
    study: FailureStudy, scenes: Mapping[str, Sequence[Scene]], out: Path, tell: Callable[[str], None]
) -> dict[str, dict[str, Sequence[Event]]]:
    """All scenes of all figures on one cluster, one after another; by figure and by scene."""
    out.mkdir(parents=True, exist_ok=True)
    with stage(study, tell) as made:
        return {
            figure: {scene.name: made.play(scene, out / f"{figure}-{scene.name}.jsonl") for scene in group}
            for figure, group in scenes.items()
        }
