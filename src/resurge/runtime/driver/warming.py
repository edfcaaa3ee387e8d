"""New nodes are warmed in the background, and count only once they are warm."""

import threading
from collections.abc import Callable, Iterable

from resurge.errors import JobError
from resurge.model.names import NodeId


class Warming:
    """Warms each node once, in a thread of its own, and knows which are warm."""

    def __init__(self, warm: Callable[[NodeId], None]) -> None:
        self._warm_one = warm
        self._started: set[NodeId] = set()
        self._done: set[NodeId] = set()
        self._lock = threading.Lock()

    @property
    def warm(self) -> list[NodeId]:
        """The nodes that are warm, in order."""
        with self._lock:
            return sorted(self._done)

    def look_after(self, nodes: Iterable[NodeId]) -> None:
        """Begin to warm the nodes that are new."""
        for node in nodes:
            if node not in self._started:
                self._started.add(node)
                threading.Thread(target=self._warm, args=(node,), daemon=True).start()

    def _warm(self, node: NodeId) -> None:
        try:
            self._warm_one(node)
        except JobError:
            # The node died while it was being warmed; if it is still there, it is tried again.
            self._started.discard(node)
            return
        with self._lock:
            self._done.add(node)
