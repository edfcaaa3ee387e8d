"""The optimal plan, proven by a constraint solver; placement on nodes included."""

import numpy as np

from resurge.planning.recovery_schedule.placement import place
from resurge.planning.recovery_schedule.plan import RecoveryPlan, plan_of_placement, plan_of_queries
from resurge.planning.recovery_schedule.problem import RecoveryProblem
from resurge.planning.solvers.set_union_knapsack import Flags, reduce
from resurge.planning.solvers.set_union_knapsack_exact import solve
from resurge.planning.solvers.set_union_knapsack_greedy import choose_by_density

DEADLINE_MS = 60_000.0
LARGEST_PLACEMENT = 50_000
"""Partitions times nodes, beyond which the placement is not part of the proof."""


def plan(problem: RecoveryProblem, *, deadline_ms: float = DEADLINE_MS) -> RecoveryPlan:
    """Choose the queries of greatest priority that fit, or within the deadline the best found.

    Guarantees the optimum if the plan's `optimal` is True. Fractions are counted in decimal units as they are
    written, to about 15 digits of their total. With nodes, an optimum that cannot be placed is sought again with the
    placement in the model; where that would be too large, the plan is repaired and not called optimal. Takes
    exponential time in the worst case: below a second for tens of queries, minutes for hundreds that share much.
    """
    reduction = reduce(problem.knapsack, merge_items=True)
    start = choose_by_density(reduction.problem)
    solves = 1 if problem.nodes is None else 2
    found = solve(reduction.problem, start, deadline_ms / 1000 / solves)
    chosen = reduction.expand(found.chosen)
    if problem.nodes is None or place(problem, _partitions(problem, chosen)) is not None:
        return plan_of_queries(problem, "exact", chosen, optimal=found.is_proven)
    fallback = plan_of_queries(problem, "exact", chosen, optimal=False)
    if len(problem.partitions) * len(problem.nodes) > LARGEST_PLACEMENT:
        return fallback
    return _with_placement_in_the_model(problem, fallback, deadline_ms)


def _partitions(problem: RecoveryProblem, chosen: Flags) -> list[str]:
    return [problem.partition_names[element] for element in problem.knapsack.union_of(chosen).nonzero()[0]]


def _with_placement_in_the_model(problem: RecoveryProblem, fallback: RecoveryPlan, deadline_ms: float) -> RecoveryPlan:
    """Solve for queries and placement together, from the repaired plan."""
    start = np.array([name in set(fallback.queries) for name in problem.query_names], dtype=np.bool_)
    nodes = problem.nodes or {}
    sizes = [problem.with_tolerance(free) for free in nodes.values()]
    found = solve(problem.knapsack, start, deadline_ms / 1000 / 2, sizes)
    if problem.knapsack.value_of(found.chosen) < fallback.priority or not found.bin_of:
        return fallback
    names = list(nodes)
    needed = problem.knapsack.union_of(found.chosen)
    placement = {problem.partition_names[element]: names[bin_] for element, bin_ in found.bin_of.items() if needed[element]}
    return plan_of_placement(problem, "exact", placement, optimal=found.is_proven)
