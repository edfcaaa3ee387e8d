"""Backups on trees: a task is backed up only when the task that it feeds could not keep its bound otherwise."""

from resurge.errors import ProblemError
from resurge.planning.backup_sites.plan import BackupPlan, backup_plan
from resurge.planning.backup_sites.problem import BackupProblem
from resurge.planning.solvers.latency_cover_forest import cheapest_cuts_of_forest, is_forest
from resurge.planning.solvers.latency_graph import LatencyGraph


def plan(problem: BackupProblem) -> BackupPlan:
    """Choose the fewest backups of a tree topology, in one pass from sources to sink (BACKUPS, algorithm 3).

    Guarantees the optimum. Takes time linear in the number of tasks for the paper's trees, in which every task feeds at
    most one other. Beyond the paper, costs that differ and trees that branch downstream too (no two paths between any
    two tasks) are solved to optimality by a dynamic program, in about the number of tasks times the tasks within a bound.
    """
    problem.require_feasible()
    _require_forest(problem)
    graph = problem.graph
    if graph.has_uniform_costs and all(len(after) <= 1 for after in graph.downstream):
        return backup_plan(problem, "tree", _latest_backups(graph), optimal=True)
    return backup_plan(problem, "tree", cheapest_cuts_of_forest(graph), optimal=True)


def _require_forest(problem: BackupProblem) -> None:
    if not is_forest(problem.graph):
        raise ProblemError(
            f"algorithm 'tree' expects at most one path between any two tasks, got {len(problem.edges)} edges among "
            f"{len(problem.tasks)} tasks that join paths again; use 'auto' or 'dag'"
        )


def _latest_backups(graph: LatencyGraph) -> list[int]:
    backups = []
    latency = [0.0] * len(graph.weights)
    for task in graph.order:
        weight, limit = graph.weights[task], graph.limits[task]
        late = [before for before in graph.upstream[task] if latency[before] + weight > limit]
        backups += late
        kept = [latency[before] for before in graph.upstream[task] if latency[before] + weight <= limit]
        latency[task] = weight + max(kept, default=0.0)
    return backups
