"""The cheapest backups by trying everything: the yardstick that is easy to trust, for small problems only."""

from resurge.errors import ProblemError
from resurge.planning.backup_sites.plan import BackupPlan, backup_plan
from resurge.planning.backup_sites.problem import BackupProblem
from resurge.planning.solvers.latency_graph import LatencyGraph, too_long_path, total_cost
from resurge.planning.solvers.latency_labels import LatencyLabels

LARGEST_CANDIDATES = 26


def plan(problem: BackupProblem) -> BackupPlan:
    """Choose the cheapest backups by searching all sets of candidate tasks.

    Guarantees the optimum. Takes time exponential in the number of candidates (tasks on a path that exceeds its bound);
    more than 26 of them are refused. Sets that leave some path too long are skipped a whole branch at a time: one task of
    such a path must be chosen, so the search branches on which of them is the first.
    """
    problem.require_feasible()
    labels = LatencyLabels(problem.graph, ())
    candidates = [task for task in problem.graph.order if labels.latency[task] > labels.allowance[task]]
    if len(candidates) > LARGEST_CANDIDATES:
        raise ProblemError(
            f"algorithm 'exhaustive' expects at most {LARGEST_CANDIDATES} candidate tasks, got {len(candidates)}; use 'exact'"
        )
    search = _Search(problem.graph)
    search.extend(frozenset(), frozenset())
    return backup_plan(problem, "exhaustive", search.best, optimal=True)


class _Search:
    """Depth-first search that remembers the cheapest feasible set so far."""

    def __init__(self, graph: LatencyGraph) -> None:
        self.graph = graph
        self.best: frozenset[int] = frozenset(range(len(graph.weights)))
        self.best_cost = float("inf")

    def extend(self, chosen: frozenset[int], refused: frozenset[int]) -> None:
        """Try every feasible superset of `chosen` that avoids `refused`."""
        cost = total_cost(self.graph, chosen)
        if cost >= self.best_cost:
            return
        path = too_long_path(self.graph, chosen)
        if path is None:
            self.best, self.best_cost = chosen, cost
            return
        for task in path[:-1]:
            if task not in refused:
                self.extend(chosen | {task}, refused)
                refused |= {task}
