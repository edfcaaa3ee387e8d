"""The default: a good plan at once, then a better one until the deadline."""

import time
from collections.abc import Callable

import numpy as np

from resurge.planning.recovery_schedule.placement import place, repaired
from resurge.planning.recovery_schedule.plan import RecoveryPlan, plan_of_placement, plan_of_queries, within_capacity
from resurge.planning.recovery_schedule.problem import RecoveryProblem
from resurge.planning.solvers.set_union_knapsack import Flags, Reduction, reduce, without_hopeless_items
from resurge.planning.solvers.set_union_knapsack_frontier import TooManyStates, best_choice
from resurge.planning.solvers.set_union_knapsack_search import LARGEST_DENSE_PROBLEM, search
from resurge.planning.solvers.set_union_knapsack_sparse_search import search_sparsely

DEADLINE_MS = 1000.0
_SHARE_FOR_SEARCH = 0.97
_STATES_AT_ONCE = 60_000
_MOST_ITEMS_AT_ONCE = 100
_MOST_ENTRIES_TO_REDUCE = 40_000


def plan(
    problem: RecoveryProblem,
    *,
    deadline_ms: float = DEADLINE_MS,
    clock: Callable[[], float] = time.perf_counter,
    seed: int = 0,
) -> RecoveryPlan:
    """Start from a one-pass greedy plan and improve it by local search until the deadline.

    Guarantees only what one pass of profit density gives, and comes within about a percent of the best known plan
    in a second, on problems of hundreds of queries. A problem that dynamic programming solves in an instant, or whose queries
    all fit, is answered at once and called optimal; otherwise the time is used up. With nodes, every improvement is
    repaired until it can be placed, and the best repaired plan is returned. Costs the deadline; a greedy pass over a
    very large problem is cut short by it.
    """
    deadline_s = clock() + _SHARE_FOR_SEARCH * deadline_ms / 1000

    def is_out_of_time() -> bool:
        return clock() >= deadline_s

    reduction = _reduction(problem)
    proven = _small_optimum(problem, reduction)
    if proven is not None:
        return plan_of_queries(problem, "anytime", proven, optimal=True)
    placer = _Placer(problem, reduction)
    size = reduction.problem.item_count * reduction.problem.element_count
    improve = search if size <= LARGEST_DENSE_PROBLEM else search_sparsely
    best = improve(reduction.problem, is_out_of_time, np.random.default_rng(seed), placer.accept)
    optimal = True if best.all() else None
    if problem.nodes is None:
        return plan_of_queries(problem, "anytime", reduction.expand(best), optimal=optimal)
    return plan_of_placement(problem, "anytime", placer.best_placement, optimal=optimal)


def _reduction(problem: RecoveryProblem) -> Reduction:
    # Of a large problem, merging would take the time that the first plan needs.
    if len(problem.knapsack.elements) > _MOST_ENTRIES_TO_REDUCE:
        return without_hopeless_items(problem.knapsack)
    return reduce(problem.knapsack, merge_items=True)


def _small_optimum(problem: RecoveryProblem, reduction: Reduction) -> Flags | None:
    """The optimal queries, if few partial plans are enough to find them and they can be placed."""
    if reduction.problem.item_count > _MOST_ITEMS_AT_ONCE:
        return None
    try:
        chosen = reduction.expand(best_choice(reduction.problem, _STATES_AT_ONCE))
    except TooManyStates:
        return None
    if not np.array_equal(chosen, within_capacity(problem, chosen)):
        return None
    if problem.nodes is not None and place(problem, _partitions(problem, chosen)) is None:
        return None
    return chosen


def _partitions(problem: RecoveryProblem, chosen: Flags) -> list[str]:
    return [problem.partition_names[element] for element in problem.knapsack.union_of(chosen).nonzero()[0]]


class _Placer:
    """Makes choices placeable and remembers the best placement, since finding it again is not certain."""

    def __init__(self, problem: RecoveryProblem, reduction: Reduction) -> None:
        self.problem = problem
        self.reduction = reduction
        self.best_placement: dict[str, str] = {}
        self.best_priority = -1.0

    def accept(self, chosen: Flags) -> Flags:
        if self.problem.nodes is None:
            return chosen
        items = within_capacity(self.problem, self.reduction.expand(chosen))
        placement = place(self.problem, _partitions(self.problem, items))
        if placement is None:
            items, placement = repaired(self.problem, items)
        priority = self.problem.knapsack.value_of(items)
        if priority > self.best_priority:
            self.best_placement, self.best_priority = placement, priority
        is_kept = np.zeros(self.reduction.problem.item_count, dtype=np.bool_)
        groups = self.reduction.group_of_item[items]
        is_kept[groups[groups >= 0]] = True
        return is_kept
