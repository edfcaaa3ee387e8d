"""Backups on any acyclic topology: the paper's ranking of candidates, then a clean-up of what turned out unneeded."""

from resurge.planning.backup_sites.plan import BackupPlan, backup_plan
from resurge.planning.backup_sites.problem import BackupProblem
from resurge.planning.backup_sites.source_search import Coverage, SourceSearch
from resurge.planning.solvers.latency_cover_search import improved
from resurge.planning.solvers.latency_graph import LatencyGraph, total_cost

NO_COST = 1e-12
"""Stands for a cost of 0 where costs divide."""

LEAST_TRADING_WORK = 30_000
TRADING_WORK_PER_EDGE = 8
"""Trading may visit that many edges: enough for hundreds of tasks, about a second for 50,000 edges."""


def plan(problem: BackupProblem) -> BackupPlan:
    """Choose few backups for any acyclic topology (BACKUPS, algorithm 4, with a clean-up).

    Guarantees the bounds, and a plan without a single backup that could be left out. Measured against the optimum it
    needs about 1 % more backups on average. Takes time proportional to the edges times a small number: 10,000 tasks
    with 50,000 edges in a few seconds.

    As in the paper, the search goes from the sources downstream; candidates are the tasks within the bound, ranked by
    B(v), the work that a backup covers, which flows downstream with F(v), the covered share. Beyond the paper: all pending
    sources search together; only tasks on a path that is too long are candidates; a second run ranks by F(v) alone;
    unneeded backups are dropped at the end and traded for cheaper ones; the better run is the plan.
    """
    problem.require_feasible()
    chosen = choose_backups(problem.graph)
    return backup_plan(problem, "dag", chosen, optimal=True if not chosen else None)


def choose_backups(graph: LatencyGraph) -> frozenset[int]:
    """The backups of `plan`, as vertices of the graph; every weight must be within its vertex's limit."""
    work_limit = max(LEAST_TRADING_WORK, TRADING_WORK_PER_EDGE * sum(map(len, graph.downstream)))

    def covered_work(task: int, coverage: Coverage) -> tuple[float, float]:
        return (coverage.work / max(graph.costs[task], NO_COST), coverage.distance)

    def covered_share(task: int, coverage: Coverage) -> tuple[float, float]:
        return (coverage.share / max(graph.costs[task], NO_COST), coverage.distance)

    runs = [SourceSearch(graph, rank).run() for rank in (covered_work, covered_share)]
    return min((improved(graph, run, work_limit) for run in runs), key=lambda run: total_cost(graph, run))
