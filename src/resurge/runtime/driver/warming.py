"""New nodes are warmed in the background, and count only once they are warm."""

import threading
from collections.abc import Callable, Collection

from resurge.errors import JobError
from resurge.model.names import NodeId


class Warming:
    """Warms each node once, in a thread of its own, and knows which are warm.

    A node that was lost and is there again under the same name is a new one: its processes and files may be others.
    """

    def __init__(self, warm: Callable[[NodeId], None]) -> None:
        self._warm_one = warm
        self._attempts: dict[NodeId, object] = {}
        self._done: set[NodeId] = set()
        self._lock = threading.Lock()

    @property
    def warm(self) -> list[NodeId]:
        """The nodes that are warm, in order."""
        with self._lock:
            return sorted(self._done)

    def look_after(self, nodes: Collection[NodeId]) -> None:
        """Begin to warm the nodes that are new, and forget those that are gone."""
        with self._lock:
            gone = self._attempts.keys() - frozenset(nodes)
            new = {node: object() for node in nodes if node not in self._attempts}
            self._attempts |= new
        self.forget(gone)
        for node, attempt in new.items():
            threading.Thread(target=self._warm, args=(node, attempt), daemon=True).start()

    def forget(self, nodes: Collection[NodeId]) -> None:
        """These nodes were lost; what is still under way to warm them does not count."""
        with self._lock:
            self._done.difference_update(nodes)
            for node in nodes:
                self._attempts.pop(node, None)

    def _warm(self, node: NodeId, attempt: object) -> None:
        try:
            self._warm_one(node)
            is_warm = True
        except JobError:
            # The node died while it was being warmed; if it is still there, it is tried again.
            is_warm = False
        with self._lock:
            if self._attempts.get(node) is not attempt:
                return
            if is_warm:
                self._done.add(node)
            else:
                self._attempts.pop(node)
