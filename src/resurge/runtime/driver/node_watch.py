"""Watches executors while jobs run: who has been silent for too long is lost, and who is waited for is told."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from resurge.model.names import NodeId
from resurge.protocols.failure_detector import Health, Patience, Pulse, Watch
from resurge.runtime.driver.node_pings import NodePings
from resurge.telemetry.events import Event, NodeHeardAgain, NodeSilent, Warned

if TYPE_CHECKING:
    from pyspark import SparkContext

LOOK_S = 0.25
LOOK_PER_NODE_S = 0.002
KILL_S = 1.0


class NodeWatch:
    """A thread that asks nodes whether they are there, and has Spark drop those that are dead."""

    def __init__(
        self, context: "SparkContext", silence_s: float, nodes: Callable[[], Collection[NodeId]], tell: Callable[[Event], None]
    ) -> None:
        self._context = context
        self._silence_s = silence_s
        self._nodes = nodes
        self._tell = tell
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="resurge-node-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(KILL_S)

    def _run(self) -> None:
        try:
            self._watch(NodePings(self._context))
        except Exception as error:
            # A session that ends takes its JVM from under this thread; anything else leaves hung nodes to Spark's own limit.
            if not self._ended.is_set() and self._context._jsc is not None:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                told = (
                    f"nodes are not watched ({reason}); a node that hangs is lost after {self._silence_s:g} s without a heartbeat"
                )
                self._tell(Warned(time.time(), told))

    def _watch(self, pings: NodePings) -> None:
        watch = Watch()
        while not self._ended.is_set():
            nodes = self._nodes()
            look_s = max(LOOK_S, LOOK_PER_NODE_S * len(nodes))
            patience = Patience(min(Patience.least_s, self._silence_s), self._silence_s, longest_look_s=2 * look_s)
            before = Watch(patience, watch.pulses, watch.looked_s).watching(nodes)
            watch = before.looked(pings.heard(nodes), time.monotonic())
            self._tell_changes(before, watch)
            for node in watch.of(Health.DEAD).keys() - before.of(Health.DEAD).keys():
                self._drop(pings, node)
            self._ended.wait(look_s)

    def _tell_changes(self, before: Watch, after: Watch) -> None:
        now = time.time()
        for node, pulse in after.pulses.items():
            known = before.pulses[node]
            if pulse.health is Health.SUSPECTED and known.health is Health.HEALTHY:
                self._tell(NodeSilent(now, node, pulse.silence_s, _allowed_s(after, pulse)))
            elif pulse.health is Health.HEALTHY and known.health is Health.SUSPECTED:
                self._tell(NodeHeardAgain(now, node, known.silence_s))

    def _drop(self, pings: NodePings, node: NodeId) -> None:
        """Kill first, as Spark does: it does not know how to kill an executor that it has removed. But do not wait for long."""

        def kill() -> None:
            with contextlib.suppress(Exception):
                pings.kill(node)

        killing = threading.Thread(target=kill, daemon=True)
        killing.start()
        killing.join(KILL_S)
        pings.remove(node)


def _allowed_s(watch: Watch, pulse: Pulse) -> float:
    return watch.patience.allowed_s(pulse.usual_s)
