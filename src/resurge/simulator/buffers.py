"""The driver's knowledge of buffers: which epochs of which output are kept for whom, on which node."""

from collections.abc import Iterable

from resurge.model.names import NodeId
from resurge.protocols.catch_up import Coverage
from resurge.simulator.world import Job, Pair


class KnownBuffers:
    """Buffers on nodes that are up."""

    def __init__(self) -> None:
        self._held: dict[NodeId, dict[Pair, set[int]]] = {}
        self._coverage: Coverage | None = {}

    def keep(self, job: Job) -> None:
        """What a job buffered, on the nodes that produced it."""
        for node, pair, epochs in job.kept():
            self._held.setdefault(node, {}).setdefault(pair, set()).update(epochs)
            self._coverage = None

    def forget_nodes(self, nodes: Iterable[NodeId]) -> None:
        """Buffers on lost nodes are gone."""
        for node in nodes:
            if self._held.pop(node, None):
                self._coverage = None

    def clear(self) -> None:
        """A global checkpoint is complete: nothing will be replayed from buffers."""
        self._held.clear()
        self._coverage = {}

    def coverage(self) -> Coverage:
        """The epochs that buffers hold, from each partition for each other."""
        if self._coverage is None:
            found: dict[Pair, frozenset[int]] = {}
            for held in self._held.values():
                for pair, epochs in held.items():
                    found[pair] = found.get(pair, frozenset()) | epochs
            self._coverage = found
        return self._coverage
