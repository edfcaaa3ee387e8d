"""Nodes of an embedded cluster that are killed and added while a job runs, on cue from its telemetry."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from resurge.runtime.driver.cluster import EmbeddedCluster
from resurge.telemetry.events import EpochFinished, Event, NodeJoined, NodesKilled
from resurge.telemetry.log import TelemetryLog


@dataclass(frozen=True)
class Strike:
    """At the end of an epoch, plus a delay: kill some of the nodes that are alive, and start others later."""

    epoch: int
    delay_s: float
    kill: int
    add_after_s: Sequence[float] = ()


class Striker:
    """Carries strikes out in threads of their own, so that the job goes on meanwhile."""

    def __init__(
        self,
        cluster: EmbeddedCluster,
        strikes: Sequence[Strike],
        choose: Callable[[list[str], int], list[str]],
        telemetry: TelemetryLog | None = None,
    ) -> None:
        self.cluster = cluster
        self.waiting = sorted(strikes, key=lambda strike: strike.epoch)
        self.choose = choose
        self.telemetry = telemetry
        self.kills = 0
        self.killed: list[list[str]] = []
        self.threads: list[threading.Thread] = []
        self.stopped = threading.Event()
        self.choosing = threading.Lock()

    def listen(self, event: Event) -> None:
        """A telemetry listener."""
        if isinstance(event, NodeJoined):
            self.cluster.hasten()
        while isinstance(event, EpochFinished) and self.waiting and event.epoch >= self.waiting[0].epoch:
            thread = threading.Thread(target=self._strike, args=(self.waiting.pop(0),), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _strike(self, strike: Strike) -> None:
        if self.stopped.wait(strike.delay_s):
            return
        self._kill(strike.kill)
        waited = 0.0
        for moment in sorted(strike.add_after_s):
            if self.stopped.wait(moment - waited):
                return
            waited = moment
            self.cluster.add(gently=True)

    def _kill(self, count: int) -> None:
        # Two strikes at the same time must not choose the same node, nor share a random generator.
        with self.choosing:
            alive = [node.name for node in self.cluster.nodes() if node.is_alive]
            victims = self.choose(alive, min(count, len(alive)))
            if victims:
                if self.telemetry is not None:
                    self.telemetry.write(NodesKilled(time.time(), victims))
                self.cluster.kill(*victims)
                self.kills += len(victims)
                self.killed.append(victims)

    def finish(self) -> None:
        """Let no thread outlive the job."""
        self.stopped.set()
        for thread in self.threads:
            thread.join()
