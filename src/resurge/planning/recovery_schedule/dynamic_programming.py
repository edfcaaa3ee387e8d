"""The optimal plan by dynamic programming, for small problems with integer costs (INCREMENTAL, appendix B)."""

from resurge.errors import ProblemError
from resurge.planning.problem_files import shown
from resurge.planning.recovery_schedule.plan import RecoveryPlan, plan_of_queries
from resurge.planning.recovery_schedule.problem import RecoveryProblem
from resurge.planning.solvers.set_union_knapsack import reduce
from resurge.planning.solvers.set_union_knapsack_frontier import TooManyStates, best_choice

MOST_STATES = 2_000_000


def plan(problem: RecoveryProblem) -> RecoveryPlan:
    """Build up all partial plans that could still become optimal, and return the best complete one.

    Guarantees the optimum without nodes, or with nodes if it can be placed (`optimal` says so). The paper grows
    plans by units of cost; this grows them query by query and keeps, for the same recovered partitions that later
    queries share, only the best plan of each cost. At most 2^queries partial plans: 18 queries are always solved,
    within a second; where more than 2,000,000 would be kept, the problem is refused.
    """
    _refuse_fractions(problem)
    reduction = reduce(problem.knapsack, merge_items=True)
    try:
        chosen = reduction.expand(best_choice(reduction.problem, MOST_STATES))
    except TooManyStates:
        raise ProblemError(
            f"queries: dynamic-programming would keep more than {MOST_STATES:,} partial plans of these "
            f"{len(problem.queries)} queries; use exact, or anytime if it need not be proven"
        ) from None
    return plan_of_queries(problem, "dynamic-programming", chosen, optimal=True)


def _refuse_fractions(problem: RecoveryProblem) -> None:
    for name, cost in problem.partitions.items():
        if cost != int(cost):
            raise ProblemError(
                f"partitions[{name!r}] must be an integer for dynamic-programming, got {shown(cost)}; "
                "use exact, or count in smaller units"
            )
