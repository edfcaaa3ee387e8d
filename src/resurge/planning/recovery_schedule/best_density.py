"""The paper's approximation: every pair of queries as a seed, each extended by profit density (INCREMENTAL, 5)."""

from resurge.planning.recovery_schedule.plan import RecoveryPlan, plan_of_queries
from resurge.planning.recovery_schedule.problem import RecoveryProblem
from resurge.planning.solvers.set_union_knapsack import reduce
from resurge.planning.solvers.set_union_knapsack_seeds import best_extension_of_pairs


def plan(problem: RecoveryProblem) -> RecoveryPlan:
    """Extend the best single queries and all pairs that fit by highest profit density; return the best plan.

    Guarantees 1 - e^(-1/d) of the optimum without nodes, d being the largest number of queries that share a
    partition. The paper's single seed is the densest query; the most valuable one is needed as well, or a query
    that leaves room for no other could be missed however much it is worth. Queries whose partitions are all paid
    for are taken at once. Costs O(queries^3 x partitions) at worst: 200 queries on 200 partitions 2 to 4 s.
    """
    # Elements that the same queries need are merged, which changes no density.
    reduction = reduce(problem.knapsack, merge_items=False)
    chosen = reduction.expand(best_extension_of_pairs(reduction.problem))
    return plan_of_queries(problem, "best-density", chosen)
