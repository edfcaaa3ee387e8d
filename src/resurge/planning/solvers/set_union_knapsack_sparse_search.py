"""Improvement of a set-union knapsack that is too large for matrices: drop a part, fill up again, keep the better."""

from collections.abc import Callable

import numpy as np

from resurge.planning.solvers.set_union_knapsack import Flags, SetUnionKnapsack
from resurge.planning.solvers.set_union_knapsack_greedy import choose_by_density

_NOISE = 0.3


def search_sparsely(
    problem: SetUnionKnapsack,
    is_out_of_time: Callable[[], bool],
    rng: np.random.Generator,
    accept: Callable[[Flags], Flags],
) -> Flags:
    """Improve a greedy choice until time is up, or the whole problem is chosen; the answer is an accepted choice."""
    current = choose_by_density(problem, is_out_of_time=is_out_of_time)
    current_value = problem.value_of(current)
    best = accept(current)
    best_value = problem.value_of(best)
    while not best.all() and not is_out_of_time():
        kept = current & (rng.random(problem.item_count) > rng.uniform(0.05, 0.4))
        prices = problem.weights * (1 + _NOISE * rng.random(problem.element_count))
        candidate = choose_by_density(problem, kept, is_out_of_time, prices)
        value = problem.value_of(candidate)
        if value >= current_value:
            current, current_value = candidate, value
        if value > best_value and not is_out_of_time():
            accepted = accept(candidate)
            if problem.value_of(accepted) > best_value:
                best, best_value = accepted, problem.value_of(accepted)
    return best
