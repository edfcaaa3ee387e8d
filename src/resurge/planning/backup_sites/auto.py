"""Recognise the shape of the topology and use the algorithm made for it."""

from resurge.planning.backup_sites import dag, line, tree
from resurge.planning.backup_sites.plan import BackupPlan
from resurge.planning.backup_sites.problem import BackupProblem
from resurge.planning.solvers.latency_cover_forest import is_forest


def plan(problem: BackupProblem) -> BackupPlan:
    """Plan with `line`, `tree` or `dag`; the plan names the one that was used.

    Guarantees what that algorithm guarantees: the optimum for lines and trees. Takes linear time to recognise the shape.
    """
    if line.is_lines(problem.graph):
        return line.plan(problem)
    if is_forest(problem.graph):
        return tree.plan(problem)
    return dag.plan(problem)
