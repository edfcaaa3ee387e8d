"""Latencies and allowances of a latency graph, kept up to date while single cuts are added and removed.

The allowance of a vertex is the largest latency it may have without pushing itself or an uncut path behind it over a
limit. With both labels known, whether a cut can go is a question about its direct successors only.
"""

from collections.abc import Collection
from heapq import heapify, heappop, heappush

from resurge.planning.solvers.latency_graph import LatencyGraph, latencies


class LatencyLabels:
    """Mutable labels for local search; `work` counts visited edges, so that a search can be bounded without a clock."""

    def __init__(self, graph: LatencyGraph, cuts: Collection[int]) -> None:
        self.graph = graph
        self.cuts = set(cuts)
        self.work = 0
        self.latency = latencies(graph, cuts)
        self.allowance = list(graph.limits)
        self._position = [0] * len(graph.order)
        for index, vertex in enumerate(graph.order):
            self._position[vertex] = index
        for vertex in reversed(graph.order):
            self.allowance[vertex] = self._evaluated_allowance(vertex)

    def passes(self, vertex: int) -> float:
        """The largest latency that the direct successors of a vertex tolerate from it, were it not cut."""
        allowance, weights = self.allowance, self.graph.weights
        self.work += len(self.graph.downstream[vertex])
        return min((allowance[after] - weights[after] for after in self.graph.downstream[vertex]), default=float("inf"))

    def is_removable(self, vertex: int) -> bool:
        """Whether the cuts stay feasible without this one."""
        return self.latency[vertex] <= self.passes(vertex)

    def add(self, vertex: int) -> list[int]:
        """Cut a vertex; return the vertices whose labels changed."""
        self.cuts.add(vertex)
        return self._spread(vertex)

    def remove(self, vertex: int) -> list[int]:
        """Undo a cut; return the vertices whose labels changed."""
        self.cuts.discard(vertex)
        return self._spread(vertex)

    def _evaluated_allowance(self, vertex: int) -> float:
        limit = self.graph.limits[vertex]
        return limit if vertex in self.cuts else min(limit, self.passes(vertex))

    def _evaluated_latency(self, vertex: int) -> float:
        before = self.graph.upstream[vertex]
        self.work += len(before)
        cuts, latency = self.cuts, self.latency
        return self.graph.weights[vertex] + max((latency[other] for other in before if other not in cuts), default=0.0)

    def _spread(self, vertex: int) -> list[int]:
        changed = self._spread_down(vertex)
        changed += self._spread_up(vertex)
        return changed

    def _spread_down(self, start: int) -> list[int]:
        position, order, latency = self._position, self.graph.order, self.latency
        waiting = [position[after] for after in self.graph.downstream[start]]
        heapify(waiting)
        queued = set(waiting)
        changed = []
        while waiting:
            vertex = order[heappop(waiting)]
            value = self._evaluated_latency(vertex)
            if value == latency[vertex]:
                continue
            latency[vertex] = value
            changed.append(vertex)
            if vertex in self.cuts:
                continue
            for after in self.graph.downstream[vertex]:
                if position[after] not in queued:
                    queued.add(position[after])
                    heappush(waiting, position[after])
        return changed

    def _spread_up(self, start: int) -> list[int]:
        position, order, allowance = self._position, self.graph.order, self.allowance
        waiting = [-position[start]]
        queued = set(waiting)
        changed = []
        while waiting:
            vertex = order[-heappop(waiting)]
            value = self._evaluated_allowance(vertex)
            if value == allowance[vertex]:
                continue
            allowance[vertex] = value
            changed.append(vertex)
            for before in self.graph.upstream[vertex]:
                if -position[before] not in queued and before not in self.cuts:
                    queued.add(-position[before])
                    heappush(waiting, -position[before])
        return changed
