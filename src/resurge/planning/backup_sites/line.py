"""Backups on lines that may join at a common sink: walk each line and back up a task as late as the bound allows."""

from resurge.errors import ProblemError
from resurge.planning.backup_sites.plan import BackupPlan, backup_plan
from resurge.planning.backup_sites.problem import BackupProblem
from resurge.planning.solvers.latency_cover_forest import cheapest_cuts_of_forest
from resurge.planning.solvers.latency_graph import LatencyGraph


def plan(problem: BackupProblem) -> BackupPlan:
    """Choose the fewest backups of a line topology, in one walk down each line (BACKUPS, algorithm 2).

    Guarantees the optimum. Takes time linear in the number of tasks. With costs that differ, waiting as long as the
    bound allows is not the cheapest, and the dynamic program for forests finds the optimum instead.
    """
    problem.require_feasible()
    _require_lines(problem)
    graph = problem.graph
    if graph.has_uniform_costs:
        return backup_plan(problem, "line", _latest_backups(graph), optimal=True)
    return backup_plan(problem, "line", cheapest_cuts_of_forest(graph), optimal=True)


def is_lines(graph: LatencyGraph) -> bool:
    """Whether every task feeds at most one other and only sinks have several inputs."""
    return _misfit(graph) is None


def _misfit(graph: LatencyGraph) -> int | None:
    for vertex, (before, after) in enumerate(zip(graph.upstream, graph.downstream, strict=True)):
        if len(after) > 1 or (after and len(before) > 1):
            return vertex
    return None


def _require_lines(problem: BackupProblem) -> None:
    misfit = _misfit(problem.graph)
    if misfit is not None:
        raise ProblemError(
            f"algorithm 'line' expects lines that join at most at a sink, got task {problem.names[misfit]!r} with "
            f"{len(problem.graph.upstream[misfit])} inputs and {len(problem.graph.downstream[misfit])} outputs; "
            "use 'auto', which recognises the shape"
        )


def _latest_backups(graph: LatencyGraph) -> list[int]:
    sources = [vertex for vertex, before in enumerate(graph.upstream) if not before]
    return [backup for source in sources for backup in _latest_backups_of_line(graph, source)]


def _latest_backups_of_line(graph: LatencyGraph, source: int) -> list[int]:
    backups = []
    task, latency = source, graph.weights[source]
    while graph.downstream[task]:
        (after,) = graph.downstream[task]
        if latency + graph.weights[after] > graph.limits[after]:
            backups.append(task)
            latency = 0.0
        task, latency = after, latency + graph.weights[after]
    return backups
