"""Watches the executors: reports the suspected ones, and has Spark remove those that are declared dead."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from resurge.model.names import NodeId
from resurge.protocols.failure_detector import FailureDetector, Health, NodeHealth, Timeouts
from resurge.runtime.driver.node_pings import NodePings
from resurge.telemetry.events import Event, NodeResponded, NodeSuspected, Warned

if TYPE_CHECKING:
    from pyspark import SparkContext

POLL_S = 0.25
"""Several questions fit into the shortest time-out."""
POLL_PER_NODE_S = 0.002
"""A question costs the driver some tenths of a millisecond: with many nodes it asks less often."""
KILL_S = 1.0
"""Spark's master may not answer while its node is cut off."""


class NodeWatch:
    """A thread that pings nodes and has Spark drop those that are declared dead."""

    def __init__(
        self,
        context: "SparkContext",
        heartbeat_timeout_s: float,
        nodes: Callable[[], Collection[NodeId]],
        emit: Callable[[Event], None],
    ) -> None:
        self._context = context
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._nodes = nodes
        self._emit = emit
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
            self._detect(NodePings(self._context))
        except Exception as error:
            # A session that ends takes its JVM from under this thread; anything else leaves hung nodes to Spark's own limit.
            if not self._ended.is_set() and self._context._jsc is not None:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                limit = f"a node that hangs is declared dead after {self._heartbeat_timeout_s:g} s without a heartbeat"
                self._emit(Warned(time.time(), f"nodes are not watched ({reason}); {limit}"))

    def _detect(self, pings: NodePings) -> None:
        detector = FailureDetector()
        while not self._ended.is_set():
            nodes = self._nodes()
            poll_s = max(POLL_S, POLL_PER_NODE_S * len(nodes))
            timeouts = Timeouts(
                min(Timeouts.least_s, self._heartbeat_timeout_s), self._heartbeat_timeout_s, longest_poll_s=2 * poll_s
            )
            before = FailureDetector(timeouts, detector.nodes, detector.polled_s).watching(nodes)
            detector = before.polled(pings.heard(nodes), time.monotonic())
            self._emit_changes(before, detector)
            for node in detector.of(Health.DEAD).keys() - before.of(Health.DEAD).keys():
                self._drop(pings, node)
            self._ended.wait(poll_s)

    def _emit_changes(self, before: FailureDetector, after: FailureDetector) -> None:
        now = time.time()
        for node, known in after.nodes.items():
            was = before.nodes[node]
            if known.health is Health.SUSPECTED and was.health is Health.HEALTHY:
                self._emit(NodeSuspected(now, node, known.unanswered_s, _timeout_s(after, known)))
            elif known.health is Health.HEALTHY and was.health is Health.SUSPECTED:
                self._emit(NodeResponded(now, node, was.unanswered_s))

    def _drop(self, pings: NodePings, node: NodeId) -> None:
        """Kill first, as Spark does: it does not know how to kill an executor that it has removed. But do not wait for long."""

        def kill() -> None:
            with contextlib.suppress(Exception):
                pings.kill(node)

        killing = threading.Thread(target=kill, daemon=True)
        killing.start()
        killing.join(KILL_S)
        pings.remove(node)


def _timeout_s(detector: FailureDetector, known: NodeHealth) -> float:
    return detector.timeouts.timeout_s(known.usual_s)
