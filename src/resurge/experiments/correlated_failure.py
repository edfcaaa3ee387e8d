"""INCREMENTAL's figure 12 on a real cluster: most nodes die at once, replacements come one by one, strategies compared."""

import random
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resurge.connectors.posts import posts
from resurge.connectors.sinks import DiscardSink
from resurge.experiments.failures import Strike, Striker
from resurge.experiments.hashtags import hashtags
from resurge.experiments.pacing import calibrated
from resurge.runtime.driver.cluster import EmbeddedCluster
from resurge.runtime.driver.cluster_runner import cluster_runner
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions
from resurge.telemetry.events import Event, NodeLost
from resurge.telemetry.log import TelemetryLog, read_events

BEST_CASE = "best-case"
STRATEGIES = ("incremental", "blocking", "eager", "source-replay", BEST_CASE)


@dataclass(frozen=True)
class FailureStudy:
    """How a failure is staged: nodes, kills, and when replacements are started, in seconds after the kill."""

    nodes: int = 10
    kill: int = 8
    arrivals_s: tuple[float, ...] = ()
    seed: int = 1
    posts_per_second: float = 400.0
    interval_s: float = 3.0
    checkpoint_interval: int = 5
    kill_after_epoch: int = 14
    watch_s: float = 60.0
    utilisation: float = 0.55
    early_s: float = 1.0
    chosen: tuple[str, ...] = field(default=STRATEGIES)

    def victims(self, alive: list[str], count: int) -> list[str]:
        """Which nodes die: the same for every strategy."""
        return random.Random(self.seed).sample(sorted(alive), count)

    @property
    def length_s(self) -> float:
        """How long a run is watched after the kill."""
        return max(self.arrivals_s, default=0.0) + self.watch_s


def arrivals(kill: int, seed: int, from_s: float, to_s: float) -> tuple[float, ...]:
    """Replacements one by one, as cloud machines came in the paper (2 to 6 minutes), scaled."""
    rng = random.Random(seed)
    return tuple(sorted(rng.uniform(from_s, to_s) for _ in range(kill)))


def run_strategy(study: FailureStudy, strategy: str, log: Path, tell: Callable[[str], None]) -> list[Event]:
    """One strategy on a cluster of its own; everything that happened is in its telemetry."""
    log.unlink(missing_ok=True)
    moments = (study.early_s,) * study.kill if strategy == BEST_CASE else study.arrivals_s
    tell(f"{strategy}: starting {study.nodes} nodes")
    with EmbeddedCluster(study.nodes) as cluster, cluster_runner(cluster, f"study {strategy}") as runner:
        striker = Striker(cluster, [Strike(study.kill_after_epoch, study.interval_s / 2, study.kill, moments)], study.victims)
        source = posts(study.posts_per_second, zipf=1.1, distinct=20_000)
        job = hashtags(source, key_groups=1, make_sink=lambda name: DiscardSink())
        with TelemetryLog(log) as telemetry, tempfile.TemporaryDirectory(prefix="resurge-study-") as folder:
            name = "incremental" if strategy == BEST_CASE else strategy
            options = RunOptions(
                folder, interval_s=study.interval_s, checkpoint_interval=study.checkpoint_interval, strategy=name
            )
            engine = Engine(
                job.topology, calibrated(runner, study.nodes, study.interval_s, study.utilisation), options, telemetry
            )
            telemetry.listeners += [striker.listen, _stop_after(engine, study.length_s)]
            tell(f"{strategy}: running")
            try:
                engine.start()
                engine.run()
            finally:
                striker.finish()
                engine.close("the study is over")
    return list(read_events(log))


def _stop_after(engine: Engine, length_s: float) -> Callable[[Event], None]:
    """Stop a while after the first loss of a node."""
    timers: list[threading.Timer] = []

    def listen(event: Event) -> None:
        if isinstance(event, NodeLost) and not timers:
            timers.append(threading.Timer(length_s, engine.stop))
            timers[0].daemon = True
            timers[0].start()

    return listen


def run_study(study: FailureStudy, out: Path, tell: Callable[[str], None]) -> dict[str, Sequence[Event]]:
    """All strategies, one after another, each with the same failure."""
    out.mkdir(parents=True, exist_ok=True)
    return {strategy: run_strategy(study, strategy, out / f"{strategy}.jsonl", tell) for strategy in study.chosen}
