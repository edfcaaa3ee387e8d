"""Cheapest feasible cuts of a latency graph by constraint programming (CP-SAT)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from resurge.planning.solvers.latency_graph import LatencyGraph, latencies, too_long_path

LARGEST_TICKS = 2**40
LARGEST_COST_TICKS = 2**30


@dataclass(frozen=True)
class ExactCover:
    """Feasible cuts, and whether the solver proved that none are cheaper."""

    cuts: frozenset[int]
    is_proven: bool


def cheapest_cuts(graph: LatencyGraph, hint: Collection[int], time_limit_s: float) -> ExactCover:
    """Improve the feasible `hint` to a cheapest set of cuts, or to the best found within the time limit.

    The solver works on whole numbers, rounded so that it accepts at least what is feasible; a path that it accepted only
    because of the rounding is forbidden by name and the solver runs again, so the answer is exact in floating point.
    """
    if not latency_exceeds(graph, ()):
        return ExactCover(frozenset(), is_proven=True)
    forbidden_paths: list[list[int]] = []
    while True:
        found, is_proven = _solve(graph, hint, forbidden_paths, time_limit_s)
        if found is None:
            return ExactCover(frozenset(hint), is_proven=False)
        path = too_long_path(graph, found)
        if path is None:
            return ExactCover(frozenset(found), is_proven)
        forbidden_paths.append(path)


def latency_exceeds(graph: LatencyGraph, cuts: Collection[int]) -> bool:
    """Whether some vertex's latency is above its limit."""
    return any(value > limit for value, limit in zip(latencies(graph, cuts), graph.limits, strict=True))


def _solve(
    graph: LatencyGraph, hint: Collection[int], forbidden_paths: list[list[int]], time_limit_s: float
) -> tuple[set[int] | None, bool]:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    cut = _latency_model(model, graph)
    for path in forbidden_paths:
        model.add_bool_or([cut[vertex] for vertex in path[:-1]])
    for vertex, variable in cut.items():
        model.add_hint(variable, vertex in set(hint))
    cost_ticks = _cost_ticks(graph)
    model.minimize(sum(cost_ticks[vertex] * variable for vertex, variable in cut.items()))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = 2
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, False
    return {vertex for vertex, variable in cut.items() if solver.boolean_value(variable)}, status == cp_model.OPTIMAL


def _latency_model(model: Any, graph: LatencyGraph) -> dict[int, Any]:
    """One Boolean per vertex worth cutting, and the latency recursion over whole ticks."""
    uncut = latencies(graph, ())
    ticks_per_unit = _ticks_per_unit(graph)
    delivered: dict[int, Any] = {}
    cut: dict[int, Any] = {}
    for vertex in graph.order:
        weight = _whole_ticks(graph.weights[vertex] * ticks_per_unit)
        limit = min(graph.limits[vertex], uncut[vertex])
        before = [delivered[other] for other in graph.upstream[vertex]]
        limit_ticks = max(weight, _whole_ticks(limit * ticks_per_unit))
        latency = model.new_int_var(weight, limit_ticks, "")
        for value in before:
            model.add(latency >= weight + value)
        if not graph.downstream[vertex]:
            continue
        cut[vertex] = model.new_bool_var("")
        delivered[vertex] = model.new_int_var(0, limit_ticks, "")
        model.add(delivered[vertex] >= latency).only_enforce_if(~cut[vertex])
    return cut


def _ticks_per_unit(graph: LatencyGraph) -> float:
    # Few ticks make small domains, which the solver likes: take the coarsest decimal scale that loses nothing.
    largest = max((limit for limit in graph.limits if limit != float("inf")), default=1.0)
    for digits in range(7):
        scale = 10.0**digits
        is_whole = all(abs(weight * scale - round(weight * scale)) < 1e-9 for weight in graph.weights)
        if is_whole and largest * scale <= LARGEST_TICKS:
            return scale
    return LARGEST_TICKS / max(largest, 1e-300)


def _whole_ticks(ticks: float) -> int:
    # Rounding down keeps every feasible choice; a value a hair below a whole number is that number.
    return int(ticks + 1e-6)


def _cost_ticks(graph: LatencyGraph) -> list[int]:
    largest = max(graph.costs, default=0.0)
    if all(float(cost).is_integer() for cost in graph.costs) and largest <= LARGEST_COST_TICKS:
        return [int(cost) for cost in graph.costs]
    return [round(cost * (LARGEST_COST_TICKS / largest)) for cost in graph.costs]
