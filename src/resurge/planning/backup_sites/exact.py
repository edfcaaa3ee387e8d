"""The cheapest backups of any topology, by a constraint solver that starts from the heuristic's plan."""

from resurge.planning.backup_sites import dag
from resurge.planning.backup_sites.plan import BackupPlan, backup_plan
from resurge.planning.backup_sites.problem import BackupProblem
from resurge.planning.solvers.latency_cover_exact import cheapest_cuts

TIME_LIMIT_S = 60.0


def plan(problem: BackupProblem, time_limit_s: float = TIME_LIMIT_S) -> BackupPlan:
    """Choose the cheapest backups, or within the time limit the best found.

    Guarantees the optimum if the plan's `optimal` is True, and never more than the `dag` heuristic. Takes exponential
    time in the worst case: a fraction of a second on the paper's topologies of 55 and 93 tasks, up to a minute on
    dense random ones of 50.
    """
    problem.require_feasible()
    start = dag.choose_backups(problem.graph)
    found = cheapest_cuts(problem.graph, start, time_limit_s)
    return backup_plan(problem, "exact", found.cuts, optimal=found.is_proven)
