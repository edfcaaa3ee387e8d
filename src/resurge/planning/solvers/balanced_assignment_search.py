"""Cheap balanced assignments: two constructions, then taking some copies out and putting them back in another order."""

import random

import numpy as np

from resurge.planning.solvers.balanced_assignment import (
    TIE,
    AssignmentProblem,
    Filling,
    fill,
    filled_in_regret_order,
    filled_largest_first,
    improve,
)

MOST_ROUNDS = 300
LARGEST_WORK = 120_000
"""Rounds times the square of the copies: half a second or so, many rounds for small problems and none for large ones."""
SEED = 1


def filled_cheaply(problem: AssignmentProblem) -> Filling | None:
    """The cheapest filling found; None if no construction finds room for all copies. The same problem, the same answer."""
    copies = problem.item_count * problem.copies
    fillings = [filled_in_regret_order(problem)]
    rounds = 0 if problem.capacity == np.inf else min(MOST_ROUNDS, LARGEST_WORK // max(1, copies**2))
    if rounds:
        fillings.append(filled_largest_first(problem))
    found = [filling for filling in fillings if filling is not None]
    for filling in found:
        improve(filling)
    best = min(found, key=Filling.cost, default=None)
    return best if best is None else _rebuilt(best, rounds)


def _rebuilt(best: Filling, rounds: int) -> Filling:
    chance = random.Random(SEED)
    items = range(best.problem.item_count)
    for _ in range(rounds):
        changed = Filling(best.problem, best.bins)
        removed = chance.sample(items, k=min(len(items), chance.randint(2, 2 + len(items) // 3)))
        for item in removed:
            for old_bin in tuple(changed.bins[item]):
                changed.take(item, old_bin)
        if fill(changed, removed) is None:
            improve(changed)
            if changed.cost() < best.cost() - TIE:
                best = changed
    return best
