"""Nodes of an embedded cluster that are killed, cut off, stopped and added while a job runs, on cue from its telemetry."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.runtime.embedded_cluster.hosts import DRIVER
from resurge.telemetry.events import EpochFinished, Event, NodeJoined, NodesKilled
from resurge.telemetry.log import TelemetryLog

FAULTS = ("kill", "cut", "hang")


@dataclass(frozen=True)
class Strike:
    """At the end of an epoch, plus a delay: something happens to so many of the nodes that are alive.

    Killed nodes are gone, and others are started later. The links of nodes are cut, or their processes stopped (hang), for
    `lasts_s` seconds; a cut of no node is one of the driver from all of them.
    """

    epoch: int
    delay_s: float
    nodes: int
    add_after_s: Sequence[float] = ()
    fault: str = "kill"
    lasts_s: float = 0.0


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
        self.disturbed: list[tuple[str, list[str]]] = []
        self.threads: list[threading.Thread] = []
        self.stopped = threading.Event()
        self.choosing = threading.Lock()

    def listen(self, event: Event) -> None:
        """A telemetry listener."""
        if isinstance(event, NodeJoined):
            self.cluster.restore_priority()
        while isinstance(event, EpochFinished) and self.waiting and event.epoch >= self.waiting[0].epoch:
            thread = threading.Thread(target=self._strike, args=(self.waiting.pop(0),), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _strike(self, strike: Strike) -> None:
        if self.stopped.wait(strike.delay_s):
            return
        if strike.fault != "kill":
            self._disturb(strike)
            return
        self._kill(strike.nodes)
        waited = 0.0
        for moment in sorted(strike.add_after_s):
            if self.stopped.wait(moment - waited):
                return
            waited = moment
            self.cluster.add(gently=True)

    def _disturb(self, strike: Strike) -> None:
        """Cut links or stop processes for a while; whatever happens, they are healed."""
        begin, end = (self.cluster.cut, self.cluster.heal) if strike.fault == "cut" else (self.cluster.pause, self.cluster.resume)
        with self.choosing:
            alive = [node.name for node in self.cluster.nodes() if node.is_alive]
            victims = self.choose(alive, min(strike.nodes, len(alive))) if strike.nodes else [DRIVER]
            begin(*victims)
            self.disturbed.append((strike.fault, victims))
        try:
            self.stopped.wait(strike.lasts_s)
        finally:
            end(*victims)

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
