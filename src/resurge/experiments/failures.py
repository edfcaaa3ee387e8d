"""Nodes of an embedded cluster that are killed and added while a job runs, on cue from its telemetry."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from resurge.runtime.driver.cluster import EmbeddedCluster
from resurge.telemetry.events import EpochFinished, Event


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
        self, cluster: EmbeddedCluster, strikes: Sequence[Strike], choose: Callable[[list[str], int], list[str]]
    ) -> None:
        self.cluster = cluster
        self.waiting = sorted(strikes, key=lambda strike: strike.epoch)
        self.choose = choose
        self.kills = 0
        self.killed: list[list[str]] = []
        self.threads: list[threading.Thread] = []
        self.stopped = threading.Event()

    def listen(self, event: Event) -> None:
        """A telemetry listener."""
        while isinstance(event, EpochFinished) and self.waiting and event.epoch >= self.waiting[0].epoch:
            thread = threading.Thread(target=self._strike, args=(self.waiting.pop(0),), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _strike(self, strike: Strike) -> None:
        self.stopped.wait(strike.delay_s)
        alive = [node.name for node in self.cluster.nodes() if node.is_alive]
        victims = self.choose(alive, min(strike.kill, len(alive)))
        if victims:
            self.cluster.kill(*victims)
            self.kills += len(victims)
            self.killed.append(victims)
        waited = 0.0
        for moment in sorted(strike.add_after_s):
            if self.stopped.wait(moment - waited):
                return
            waited = moment
            self.cluster.add()

    def finish(self) -> None:
        """Let no thread outlive the job."""
        self.stopped.set()
        for thread in self.threads:
            thread.join()
