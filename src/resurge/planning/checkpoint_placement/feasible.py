"""A placement that keeps the constraints, whatever it takes; or the reason why there is none."""

from collections.abc import Callable

import numpy as np

from resurge.errors import InfeasibleError
from resurge.planning.checkpoint_placement.problem import CheckpointProblem
from resurge.planning.solvers.balanced_assignment import AssignmentProblem, Filling, filled_largest_first

SEARCH_TIME_LIMIT_S = 20.0


def feasible(problem: CheckpointProblem, construct: Callable[[AssignmentProblem], Filling | None]) -> Filling:
    """What `construct` makes; if it finds no room, the most balanced placement; if that fails too, a solver's answer."""
    filling = construct(problem.assignment) or filled_largest_first(problem.assignment)
    return filling or _solved(problem)


def _solved(problem: CheckpointProblem) -> Filling:
    from resurge.planning.solvers.balanced_assignment_exact import cheapest_bins

    found = cheapest_bins(problem.assignment, hint=None, time_limit_s=SEARCH_TIME_LIMIT_S)
    if found.bins is None:
        raise InfeasibleError(infeasible_balance(problem, found.is_proven))
    return Filling(problem.assignment, found.bins)


def infeasible_balance(problem: CheckpointProblem, is_proven: bool) -> str:
    """Say that the balance cannot be kept, and what a largest-first placement reaches."""
    assignment = problem.assignment
    balanced = filled_largest_first(assignment.without_capacity()) or Filling(assignment)
    average = float(assignment.weights.sum()) * problem.copies / max(len(problem.nodes), 1)
    reached = float(balanced.loads.max(initial=0.0)) / max(average, 1e-300)
    fullest = problem.node_names[int(np.argmax(balanced.loads))]
    verdict = "no placement keeps" if is_proven else "no placement was found that keeps"
    return (
        f"balance is {problem.balance:g}, but {verdict} every node within {problem.balance:g} times the average load "
        f"{average:g}; node {fullest!r} needs {reached:.4g} times even if the heaviest key groups are spread first: "
        f"give a balance of at least {reached + 0.0005:.3f}, fewer copies or more nodes"
    )
