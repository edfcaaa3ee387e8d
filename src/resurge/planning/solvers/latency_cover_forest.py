"""Cheapest feasible cuts of a latency graph that is a forest, by dynamic programming over step functions.

Root each tree anywhere. What the rest of the tree needs to know of a subtree is one step function of one latency:
if the subtree's top delivers towards the root, its cheapest cost by the latency that it may deliver at most;
if the top receives from the root's side, its cheapest cost by the latency that it receives.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from resurge.planning.solvers.latency_graph import LatencyGraph

CUT = -1.0
"""Stands for a latency in a step's choice: the vertex is cut."""


class Step(NamedTuple):
    """At this latency the subtree costs `cost`, with its top's latency at most `choice`, or its top cut."""

    latency: float
    cost: float
    choice: float


@dataclass(frozen=True)
class _Place:
    """A vertex of a rooted tree: its neighbours away from the root, and whether it delivers towards the root."""

    vertex: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    delivers: bool


def is_forest(graph: LatencyGraph) -> bool:
    """Whether there is at most one path, direction aside, between any two vertices."""
    parent = list(range(len(graph.weights)))

    def root(vertex: int) -> int:
        while parent[vertex] != vertex:
            parent[vertex] = parent[parent[vertex]]
            vertex = parent[vertex]
        return vertex

    for vertex, successors in enumerate(graph.downstream):
        for after in successors:
            first, second = root(vertex), root(after)
            if first == second:
                return False
            parent[first] = second
    return True


def cheapest_cuts_of_forest(graph: LatencyGraph) -> frozenset[int]:
    """Find cheapest feasible cuts; the graph must be a forest in which every weight is within its vertex's limit."""
    places = _places(graph)
    steps: dict[int, list[Step]] = {}
    for place in reversed(places):
        steps[place.vertex] = _steps(graph, place, steps)
    return frozenset(_chosen_cuts(graph, places, steps))


def _places(graph: LatencyGraph) -> list[_Place]:
    """Every vertex after the one that it hangs from; a root counts as delivering, to nobody."""
    places: list[_Place] = []
    seen = [False] * len(graph.weights)
    for root in graph.order:
        waiting = [] if seen[root] else [(root, True)]
        while waiting:
            vertex, delivers = waiting.pop()
            seen[vertex] = True
            before = tuple(other for other in graph.upstream[vertex] if not seen[other])
            after = tuple(other for other in graph.downstream[vertex] if not seen[other])
            places.append(_Place(vertex, before, after, delivers))
            waiting += [(other, True) for other in before] + [(other, False) for other in after]
    return places


def _steps(graph: LatencyGraph, place: _Place, steps: dict[int, list[Step]]) -> list[Step]:
    weight, limit = graph.weights[place.vertex], graph.limits[place.vertex]
    cut = graph.costs[place.vertex] + sum(steps[other][0].cost for other in place.after)
    cut += sum(steps[other][_last_within(steps[other], weight, limit)].cost for other in place.before)
    latencies, costs = _uncut_costs(graph, place, steps)
    if place.delivers:
        return _delivering_steps(cut, latencies, costs)
    return _receiving_steps(cut, latencies, costs, weight, limit)


def _uncut_costs(graph: LatencyGraph, place: _Place, steps: dict[int, list[Step]]) -> tuple[list[float], list[float]]:
    """Cost of the subtree by its top's latency, the top not being cut, at every latency where the cost may change."""
    weight = graph.weights[place.vertex]
    limit = min([graph.limits[place.vertex], *(steps[other][-1].latency for other in place.after)])
    if weight > limit:
        return [], []
    base = sum(steps[other][0].cost for other in (*place.before, *place.after))
    falls: list[tuple[float, float]] = []
    for other in place.before:
        falls += [
            (weight + step.latency, step.cost - earlier.cost)
            for earlier, step in zip(steps[other], steps[other][1:], strict=False)
        ]
    rises: list[tuple[float, float]] = []
    for other in place.after:
        rises += [
            (earlier.latency, step.cost - earlier.cost) for earlier, step in zip(steps[other], steps[other][1:], strict=False)
        ]
    points = sorted({weight, limit, *(at for at, _ in falls), *(at for at, _ in rises)})
    points = points[bisect_left(points, weight) : bisect_right(points, limit)]
    # A fall counts from its latency on, a rise only beyond its latency.
    fallen = _sums_at(points, sorted(falls), includes_equal=True)
    risen = _sums_at(points, sorted(rises), includes_equal=False)
    return points, [base + fall + rise for fall, rise in zip(fallen, risen, strict=True)]


def _sums_at(points: Sequence[float], changes: Sequence[tuple[float, float]], includes_equal: bool) -> list[float]:
    sums = [0.0, *accumulate(change for _, change in changes)]
    places = [at for at, _ in changes]
    find = bisect_right if includes_equal else bisect_left
    return [sums[find(places, point)] for point in points]


def _delivering_steps(cut: float, latencies: Sequence[float], costs: Sequence[float]) -> list[Step]:
    steps = [Step(0.0, cut, CUT)]
    for latency, cost in zip(latencies, costs, strict=True):
        if cost < steps[-1].cost:
            step = Step(latency, cost, latency)
            steps = [step] if latency <= 0.0 else [*steps, step] if steps[-1].latency < latency else [*steps[:-1], step]
    return steps


def _receiving_steps(cut: float, latencies: Sequence[float], costs: Sequence[float], weight: float, limit: float) -> list[Step]:
    """Steps by received latency: the last one that a step holds for, so a lookup takes the first at or above."""
    steps = [Step(max(limit - weight, 0.0), cut, CUT)]
    for latency, cost in zip(reversed(latencies), reversed(costs), strict=True):
        if cost < steps[-1].cost:
            step = Step(max(latency - weight, 0.0), cost, latency)
            steps = [*steps, step] if step.latency < steps[-1].latency else [*steps[:-1], step]
    return steps[::-1]


def _last_within(steps: Sequence[Step], weight: float, limit: float) -> int:
    index = len(steps) - 1
    while index > 0 and weight + steps[index].latency > limit:
        index -= 1
    return index


def _chosen_cuts(graph: LatencyGraph, places: Sequence[_Place], steps: dict[int, list[Step]]) -> list[int]:
    """Follow the choices from the roots down."""
    choice_of: dict[int, float] = {}
    cuts = []
    for place in places:
        vertex = place.vertex
        choice = choice_of.get(vertex, steps[vertex][-1].choice)
        weight = graph.weights[vertex]
        if choice == CUT:
            cuts.append(vertex)
        may_have = graph.limits[vertex] if choice == CUT else choice
        for other in place.before:
            choice_of[other] = steps[other][_last_within(steps[other], weight, may_have)].choice
        delivers = 0.0 if choice == CUT else choice
        for other in place.after:
            choice_of[other] = next(step for step in steps[other] if step.latency >= delivers).choice
    return cuts
