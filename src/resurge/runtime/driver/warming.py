"""New nodes are warmed in the background, and count only once they are warm. Nodes that do not fit are refused."""

import threading
import time
from collections.abc import Callable, Collection

from resurge.errors import JobError, UnfitNodeError
from resurge.model.names import NodeId
from resurge.protocols import retrying


class Warming:
    """Warms each node in a thread of its own, and knows which nodes are warm and which are refused.

    A node that was lost and is there again under the same name is a new one: its processes and files may be others.
    """

    def __init__(self, warm: Callable[[NodeId], None], refuse: Callable[[str], None] = lambda message: None) -> None:
        self._warm_one = warm
        self._refuse = refuse
        self._attempts: dict[NodeId, object] = {}
        self._done: set[NodeId] = set()
        self._refused: dict[NodeId, str] = {}
        self._lock = threading.Lock()

    @property
    def warm(self) -> list[NodeId]:
        """The nodes that are warm, in order."""
        with self._lock:
            return sorted(self._done)

    @property
    def refused(self) -> dict[NodeId, str]:
        """The nodes that are not used, and why."""
        with self._lock:
            return dict(self._refused)

    def track(self, nodes: Collection[NodeId]) -> None:
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
                self._refused.pop(node, None)

    def _warm(self, node: NodeId, attempt: object) -> None:
        failures = 0
        reason: str | None = None
        while self._is_current(node, attempt):
            try:
                self._warm_one(node)
                reason = None
                break
            except UnfitNodeError as error:
                reason = str(error)
                break
            except JobError as error:
                # The node may have died while it was being warmed; if it is still there, it is tried again.
                failures += 1
                reason = f"node {node} could not be warmed: {error}"
                pause_s = retrying.pause_s(failures)
                if pause_s is None:
                    break
                time.sleep(pause_s)
        self._ended(node, attempt, reason)

    def _is_current(self, node: NodeId, attempt: object) -> bool:
        with self._lock:
            return self._attempts.get(node) is attempt

    def _ended(self, node: NodeId, attempt: object, reason: str | None) -> None:
        with self._lock:
            if self._attempts.get(node) is not attempt:
                return
            if reason is None:
                self._done.add(node)
            else:
                self._refused[node] = reason
        if reason is not None:
            self._refuse(reason)
