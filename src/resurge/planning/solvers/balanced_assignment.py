"""Put copies of weighted items into bins at least cost: bins have a capacity, copies of an item need bins of different classes.

A greedy construction in regret order, and an improvement by single moves and swaps; both vectorised.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bins = list[list[int]]
"""For each item, the bins of its copies."""

TIE = 1e-12
LARGEST_SWAP_ATTEMPTS = 6_000
"""Each attempt looks at all copies at once; more of them than this take seconds and bring next to nothing."""


@dataclass(frozen=True)
class AssignmentProblem:
    """`costs` and `is_allowed` have one row per item and one column per bin; `classes` has the class of each bin."""

    costs: Floats
    is_allowed: NDArray[np.bool_]
    weights: Floats
    capacity: float
    classes: NDArray[np.int64]
    copies: int

    @cached_property
    def item_count(self) -> int:
        """How many items there are."""
        return len(self.weights)

    def without_capacity(self) -> "AssignmentProblem":
        """The same problem with bins that take anything."""
        return replace(self, capacity=float("inf"))


class Filling:
    """Copies in bins, with the load of every bin; the capacity is the caller's to respect."""

    def __init__(self, problem: AssignmentProblem, bins: Iterable[Iterable[int]] | None = None) -> None:
        self.problem = problem
        self.loads = np.zeros(len(problem.classes))
        self.bins: Bins = [[] for _ in range(problem.item_count)]
        for item, chosen in enumerate(bins or ()):
            for chosen_bin in chosen:
                self.put(item, chosen_bin)

    def put(self, item: int, chosen_bin: int) -> None:
        """Add one copy."""
        self.bins[item].append(chosen_bin)
        self.loads[chosen_bin] += self.problem.weights[item]

    def take(self, item: int, chosen_bin: int) -> None:
        """Remove one copy."""
        self.bins[item].remove(chosen_bin)
        self.loads[chosen_bin] -= self.problem.weights[item]

    def move(self, item: int, old_bin: int, new_bin: int) -> None:
        """Move one copy, keeping its place among the item's copies."""
        self.bins[item][self.bins[item].index(old_bin)] = new_bin
        self.loads[old_bin] -= self.problem.weights[item]
        self.loads[new_bin] += self.problem.weights[item]

    def suits(self, item: int, leaving: int | None = None) -> NDArray[np.bool_]:
        """The bins that another copy of an item may go to, capacity aside; `leaving` is a copy that will be gone."""
        suitable: NDArray[np.bool_] = self.problem.is_allowed[item].copy()
        for taken in self.bins[item]:
            if taken != leaving:
                suitable &= self.problem.classes != self.problem.classes[taken]
        return suitable

    def fits(self, item: int) -> NDArray[np.bool_]:
        """The bins that have room for one more copy of an item."""
        return np.asarray(self.loads + self.problem.weights[item] <= self.problem.capacity)

    def missing(self) -> list[int]:
        """The items that do not have all their copies."""
        return [item for item, chosen in enumerate(self.bins) if len(chosen) < self.problem.copies]

    def is_within_capacity(self) -> bool:
        """Whether no bin is over-filled."""
        return bool(np.all(self.loads <= self.problem.capacity))

    def cost(self) -> float:
        """The total cost of all copies."""
        return float(sum(self.problem.costs[item, chosen].sum() for item, chosen in enumerate(self.bins) if chosen))


def filled_in_regret_order(problem: AssignmentProblem, start: Filling | None = None) -> Filling | None:
    """Place every missing copy, first the one that loses most if its best bin is gone; None if some copy finds no room.

    Items that found no room are placed first in the next attempt; after a few attempts, largest first into the emptiest bin.
    """
    urgent: dict[int, None] = {}
    for _ in range(10):
        filling = Filling(problem, start.bins if start else None)
        stuck = fill(filling, list(urgent))
        if stuck is None:
            return filling
        if stuck in urgent:
            break
        urgent[stuck] = None
    return filled_largest_first(problem)


def fill(filling: Filling, urgent: list[int]) -> int | None:
    """Place missing copies, of the urgent items in their order and then by regret; return an item without room, or None."""
    problem = filling.problem
    waiting = filling.missing()
    regret = np.full(problem.item_count, -np.inf)
    best = np.full((problem.item_count, 2), -1)
    for item in waiting:
        regret[item], best[item] = _regret(filling, item)
    first = [item for item in urgent for _ in range(problem.copies - len(filling.bins[item]))][::-1]
    for _ in range(sum(problem.copies - len(filling.bins[item]) for item in waiting)):
        item = first.pop() if first else int(np.argmax(regret))
        chosen = _cheapest_bin(filling, item)
        if chosen is None:
            return item
        filling.put(item, chosen)
        is_done = len(filling.bins[item]) == problem.copies
        regret[item], best[item] = (-np.inf, (-1, -1)) if is_done else _regret(filling, item)
        no_room = filling.loads[chosen] + problem.weights > problem.capacity
        for other in np.flatnonzero((best == chosen).any(axis=1) & no_room & (regret > -np.inf)).tolist():
            regret[other], best[other] = _regret(filling, other)
    return None


def _regret(filling: Filling, item: int) -> tuple[float, tuple[int, int]]:
    """By how much the second best bin of an item is worse than its best, and the two bins."""
    possible = np.flatnonzero(filling.suits(item) & filling.fits(item))
    if len(possible) < 2:
        return np.inf, (int(possible[0]) if len(possible) else -1, -1)
    costs = filling.problem.costs[item, possible]
    first, second = np.argpartition(costs, 1)[:2]
    return float(costs[second] - costs[first]), (int(possible[first]), int(possible[second]))


def _cheapest_bin(filling: Filling, item: int) -> int | None:
    """The cheapest bin with room; among equals the emptiest."""
    possible = np.flatnonzero(filling.suits(item) & filling.fits(item))
    if not len(possible):
        return None
    costs = filling.problem.costs[item, possible]
    equal = possible[costs <= costs.min() + TIE]
    return int(equal[np.argmin(filling.loads[equal])])


def filled_largest_first(problem: AssignmentProblem) -> Filling | None:
    """Place copies by falling weight, each into the emptiest bin that suits: costs aside, the most balanced; None if stuck."""
    filling = Filling(problem)
    for item in np.argsort(-problem.weights, kind="stable").tolist():
        for _ in range(problem.copies):
            possible = np.flatnonzero(filling.suits(item) & filling.fits(item))
            if not len(possible):
                return None
            filling.put(item, int(possible[np.argmin(filling.loads[possible])]))
    return filling


def improve(filling: Filling) -> None:
    """Move and swap copies while that lowers the cost; every bin stays within capacity."""
    copies = max(1, filling.problem.item_count * filling.problem.copies)
    for _ in range(max(1, LARGEST_SWAP_ATTEMPTS // copies)):
        moved = _move_copies(filling)
        if not (_swap_copies(filling) or moved):
            return


def _move_copies(filling: Filling) -> bool:
    has_moved = False
    for item in range(filling.problem.item_count):
        for old_bin in tuple(filling.bins[item]):
            gain, new_bin = best_move(filling, item, old_bin)
            if gain > TIE:
                filling.move(item, old_bin, new_bin)
                has_moved = True
    return has_moved


def best_move(filling: Filling, item: int, old_bin: int) -> tuple[float, int]:
    """The move of one copy that lowers the cost most; (0, its own bin) if none does."""
    possible = filling.suits(item, leaving=old_bin) & filling.fits(item)
    possible[old_bin] = True
    costs = np.where(possible, filling.problem.costs[item], np.inf)
    new_bin = int(np.argmin(costs))
    return float(costs[old_bin] - costs[new_bin]), new_bin


@dataclass(frozen=True)
class Swap:
    """Two copies that change places."""

    gain: float
    item: int
    bin: int
    other: int
    other_bin: int

    def apply(self, filling: Filling) -> None:
        """Carry the swap out."""
        filling.move(self.item, self.bin, self.other_bin)
        filling.move(self.other, self.other_bin, self.bin)


def _swap_copies(filling: Filling) -> bool:
    problem = filling.problem
    if problem.capacity == np.inf:
        return False
    has_swapped = False
    cheapest = np.where(problem.is_allowed, problem.costs, np.inf).min(axis=1, initial=np.inf)
    grid = copy_grid(filling)
    for item in range(problem.item_count):
        for old_bin in tuple(filling.bins[item]):
            # A copy in its cheapest bin cannot gain; it may still be the other side of a swap.
            if problem.costs[item, old_bin] <= cheapest[item] + TIE:
                continue
            swap = best_swap(filling, item, old_bin, grid)
            if swap is not None:
                swap.apply(filling)
                grid[swap.item], grid[swap.other] = filling.bins[swap.item], filling.bins[swap.other]
                has_swapped = True
    return has_swapped


def copy_grid(filling: Filling) -> NDArray[np.int64]:
    """The bins of all copies as one array, a row per item; every item must have all its copies."""
    return np.array(filling.bins, dtype=np.int64).reshape(filling.problem.item_count, filling.problem.copies)


def best_swap(filling: Filling, item: int, old_bin: int, grid: NDArray[np.int64]) -> Swap | None:
    """The swap of one copy with a copy of another item that lowers the total cost most, if any does."""
    problem = filling.problem
    costs, weights, loads = problem.costs, problem.weights, filling.loads
    others, places = np.nonzero(filling.suits(item, leaving=old_bin)[grid])
    other_bins = grid[others, places]
    gains = costs[item, old_bin] + costs[others, other_bins] - costs[item, other_bins] - costs[others, old_bin]
    shift = weights[item] - weights[others]
    fits = (loads[other_bins] + shift <= problem.capacity) & (loads[old_bin] - shift <= problem.capacity)
    possible = np.flatnonzero(fits & problem.is_allowed[others, old_bin] & (gains > TIE) & (other_bins != old_bin))
    for index in possible[np.argsort(-gains[possible])].tolist():
        other, other_bin = int(others[index]), int(other_bins[index])
        if other != item and filling.suits(other, leaving=other_bin)[old_bin]:
            return Swap(float(gains[index]), item, old_bin, other, other_bin)
    return None
