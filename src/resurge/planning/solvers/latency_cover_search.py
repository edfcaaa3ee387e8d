"""Improve feasible cuts of a latency graph: drop what is not needed, then trade new cuts for more or dearer old ones."""

from collections.abc import Collection, Iterable, Sequence

from resurge.planning.solvers.latency_graph import LatencyGraph, total_cost
from resurge.planning.solvers.latency_labels import LatencyLabels

WIDEST_STEP = 200
"""Trading a wider step at once visits too many edges for what it brings."""


def improved(graph: LatencyGraph, cuts: Collection[int], work_limit: int) -> frozenset[int]:
    """Return feasible cuts that are no dearer; trading stops after visiting about `work_limit` edges."""
    labels = LatencyLabels(graph, cuts)
    drop_unneeded(labels, sorted(cuts, key=lambda vertex: (-graph.costs[vertex], labels.latency[vertex])))
    groups = _groups(graph)
    labels.work = 0
    has_traded = True
    while has_traded:
        has_traded = False
        for group in groups:
            if labels.work >= work_limit:
                return frozenset(labels.cuts)
            has_traded |= _traded(labels, group)
    return frozenset(labels.cuts)


def drop_unneeded(labels: LatencyLabels, candidates: Iterable[int]) -> list[int]:
    """Remove, in the given order, every cut without which the rest is still feasible; return the removed."""
    dropped = []
    for vertex in candidates:
        if vertex in labels.cuts and labels.is_removable(vertex):
            labels.remove(vertex)
            dropped.append(vertex)
    return dropped


def _groups(graph: LatencyGraph) -> list[Sequence[int]]:
    """What is tried as new cuts together: every single vertex, and every step of parallel vertices.

    Wide steps need the groups: replacing the cuts of one step by those of a narrower one pays only as a whole.
    """
    inner = [vertex for vertex in graph.order if graph.downstream[vertex]]
    from_start = _hops(graph.order, graph.upstream)
    to_end = _hops(graph.order[::-1], graph.downstream)
    groups: dict[tuple[int, ...], None] = dict.fromkeys((vertex,) for vertex in inner)
    for hops in (from_start, to_end):
        steps: dict[int, list[int]] = {}
        for vertex in inner:
            steps.setdefault(hops[vertex], []).append(vertex)
        groups.update(dict.fromkeys(tuple(sorted(step)) for step in steps.values() if len(step) <= WIDEST_STEP))
    return list(groups)


def _hops(order: Sequence[int], neighbours: Sequence[Sequence[int]]) -> list[int]:
    hops = [0] * len(order)
    for vertex in order:
        hops[vertex] = 1 + max((hops[other] for other in neighbours[vertex]), default=-1)
    return hops


def _traded(labels: LatencyLabels, group: Sequence[int]) -> bool:
    """Cut a group, drop whatever that makes unneeded, and keep the result only if it is cheaper."""
    graph = labels.graph
    added = [vertex for vertex in group if vertex not in labels.cuts]
    touched: set[int] = set()
    for vertex in added:
        changed = labels.add(vertex)
        touched.update(changed)
        for other in changed:
            touched.update(graph.upstream[other])
    dropped = drop_unneeded(labels, _dearest_first(graph, (touched & labels.cuts).difference(added)))
    drop_unneeded(labels, _dearest_first(graph, added))
    kept = [vertex for vertex in added if vertex in labels.cuts]
    if total_cost(graph, dropped) - total_cost(graph, kept) > 1e-12 * total_cost(graph, kept):
        return True
    for vertex in dropped:
        labels.add(vertex)
    for vertex in kept:
        labels.remove(vertex)
    return False


def _dearest_first(graph: LatencyGraph, vertices: Iterable[int]) -> list[int]:
    return sorted(vertices, key=lambda vertex: (-graph.costs[vertex], vertex))
