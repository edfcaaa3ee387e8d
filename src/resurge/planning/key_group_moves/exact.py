"""The placement with the lowest score, by a constraint solver that starts from the heuristic's placement."""

from resurge.planning.key_group_moves import balanced
from resurge.planning.key_group_moves.plan import MovePlan, move_plan
from resurge.planning.key_group_moves.problem import MoveProblem
from resurge.planning.key_group_moves.solving import best_places

TIME_LIMIT_S = 60.0


def plan(problem: MoveProblem, time_limit_s: float = TIME_LIMIT_S) -> MovePlan:
    """Find the placement with the lowest score, or the best found within the time limit.

    Guarantees the optimum (to about nine digits) if the plan's `optimal` is True, and never worse than `balanced`.
    Takes exponential time in the worst case: measured up to 30 partitions on 6 nodes, some seconds.
    """
    start = balanced.placed(problem)
    found = best_places(problem, start.where, time_limit_s)
    is_better = found.where is not None and problem.table.score(found.where) < start.score()
    where = found.where if is_better and found.where is not None else start.where
    return move_plan(problem, "exact", where, optimal=found.is_proven)
