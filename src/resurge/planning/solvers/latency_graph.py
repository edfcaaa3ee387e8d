"""A weighted acyclic graph whose paths must be cut before they grow longer than a limit.

The latency of a vertex is its weight plus the largest latency among its direct predecessors, where a predecessor that is
cut counts as 0. A set of cuts is feasible when every vertex's latency is within the vertex's limit.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

RELATIVE_TOLERANCE = 1e-12
"""Sums of decimal fractions carry rounding errors; a latency this little above its limit counts as within it."""


@dataclass(frozen=True)
class LatencyGraph:
    """Vertices are numbered from 0; `order` is a topological order; limits already include the tolerance."""

    weights: tuple[float, ...]
    limits: tuple[float, ...]
    costs: tuple[float, ...]
    upstream: tuple[tuple[int, ...], ...]
    downstream: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]

    @property
    def has_uniform_costs(self) -> bool:
        """Whether every cut costs the same, so that counting cuts is enough."""
        return len(set(self.costs)) <= 1


def with_tolerance(limit: float) -> float:
    """Widen a limit by the rounding error that sums of weights may carry."""
    return limit * (1.0 + RELATIVE_TOLERANCE)


def latencies(graph: LatencyGraph, cuts: Collection[int]) -> list[float]:
    """Evaluate the latency of every vertex, in one pass along the topological order."""
    delivered = [0.0] * len(graph.weights)
    result = [0.0] * len(graph.weights)
    is_cut = bytearray(len(graph.weights))
    for vertex in cuts:
        is_cut[vertex] = 1
    for vertex in graph.order:
        latency = graph.weights[vertex] + max((delivered[before] for before in graph.upstream[vertex]), default=0.0)
        result[vertex] = latency
        delivered[vertex] = 0.0 if is_cut[vertex] else latency
    return result


def is_feasible(graph: LatencyGraph, cuts: Collection[int]) -> bool:
    """Whether every vertex's latency is within its limit."""
    return all(latency <= limit for latency, limit in zip(latencies(graph, cuts), graph.limits, strict=True))


def too_long_path(graph: LatencyGraph, cuts: Collection[int]) -> list[int] | None:
    """Find a path of vertices, uncut but perhaps for its last, that exceeds its last vertex's limit; None if feasible."""
    values = latencies(graph, cuts)
    is_cut = set(cuts)
    end = next((vertex for vertex in graph.order if values[vertex] > graph.limits[vertex]), None)
    if end is None:
        return None
    path = [end]
    while True:
        uncut = [before for before in graph.upstream[path[-1]] if before not in is_cut]
        if not uncut:
            return _shortened(graph, path[::-1])
        path.append(max(uncut, key=values.__getitem__))


def _shortened(graph: LatencyGraph, path: Sequence[int]) -> list[int]:
    # A shorter path is a stronger demand: drop leading vertices while the rest is still too long.
    total = sum(graph.weights[vertex] for vertex in path)
    start = 0
    while total - graph.weights[path[start]] > graph.limits[path[-1]]:
        total -= graph.weights[path[start]]
        start += 1
    return list(path[start:])


def total_cost(graph: LatencyGraph, cuts: Collection[int]) -> float:
    """Sum the costs of a set of cuts."""
    return sum(graph.costs[vertex] for vertex in cuts)
