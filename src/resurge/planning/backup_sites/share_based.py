"""The baseline of BACKUPS: candidates in the order of the resources they would be given, whatever they cover."""

from math import sqrt

from resurge.planning.backup_sites.plan import BackupPlan, backup_plan
from resurge.planning.backup_sites.problem import BackupProblem
from resurge.planning.backup_sites.source_search import Coverage, SourceSearch
from resurge.planning.solvers.latency_graph import LatencyGraph


def plan(problem: BackupProblem) -> BackupPlan:
    """In each round of the search, back up the candidate with the largest balanced share of resources.

    Guarantees the bounds, and nothing about the number of backups. Takes time proportional to the edges times a small
    number. The share of a task that gets a fraction f of the input and takes time T is the one that minimises the
    latency of a chain, proportional to the square root of f x T; among equals the farthest downstream is chosen.
    """
    problem.require_feasible()
    shares = _balanced_shares(problem.graph)

    def balanced_share(task: int, coverage: Coverage) -> tuple[float, float]:
        return (shares[task], coverage.distance)

    chosen = SourceSearch(problem.graph, balanced_share).run()
    return backup_plan(problem, "share-based", chosen, optimal=True if not chosen else None)


def _balanced_shares(graph: LatencyGraph) -> list[float]:
    fraction = [0.0] * len(graph.weights)
    for task in graph.order:
        before = graph.upstream[task]
        fraction[task] = sum(fraction[other] / len(graph.downstream[other]) for other in before) if before else 1.0
    return [sqrt(part * weight) for part, weight in zip(fraction, graph.weights, strict=True)]
