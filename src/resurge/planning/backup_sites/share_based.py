"""The baseline of BACKUPS: tasks in the order of the resources they would be given, whatever their place."""

from math import sqrt

from resurge.planning.backup_sites.plan import BackupPlan, backup_plan
from resurge.planning.backup_sites.problem import BackupProblem
from resurge.planning.solvers.latency_graph import LatencyGraph
from resurge.planning.solvers.latency_labels import LatencyLabels


def plan(problem: BackupProblem) -> BackupPlan:
    """Back up the task with the largest balanced share of resources, until every task keeps its bound.

    Guarantees the bounds, and nothing about the number of backups. Takes time for one sort, and for each backup the
    tasks around it. The share of a task that gets a fraction f of the input and takes time T is the one that minimises
    the latency of a chain, proportional to the square root of f x T.
    """
    problem.require_feasible()
    labels = LatencyLabels(problem.graph, ())
    for task in _by_falling_share(problem.graph):
        # Once no path through a task is too long, more backups elsewhere keep it so: one look at each task is enough.
        if labels.latency[task] > labels.allowance[task] and problem.graph.downstream[task]:
            labels.add(task)
    return backup_plan(problem, "share-based", labels.cuts, optimal=True if not labels.cuts else None)


def _by_falling_share(graph: LatencyGraph) -> list[int]:
    fraction = [0.0] * len(graph.weights)
    for task in graph.order:
        before = graph.upstream[task]
        fraction[task] = sum(fraction[other] / len(graph.downstream[other]) for other in before) if before else 1.0
    return sorted(graph.order, key=lambda task: -sqrt(fraction[task] * graph.weights[task]))
