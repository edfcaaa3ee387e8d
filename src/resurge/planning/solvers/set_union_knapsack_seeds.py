"""Profit-density extension of many seeds at once, for the set-union knapsack: one row of a matrix per seed.

A partial choice is the set of elements it has paid for, since every item that they complete belongs to it.
"""

from collections.abc import Iterator

import numpy as np

from resurge.planning.solvers.set_union_knapsack import Flags, Floats, Integers, SetUnionKnapsack

_SEEDS_AT_ONCE = 4096
_ENTRIES_AT_ONCE = 2_000_000
_SURELY_TOO_HEAVY = 1 + 1e-4


def best_extension_of_pairs(problem: SetUnionKnapsack) -> Flags:
    """Extend the best single items and every pair that fits by profit density; return the most valuable choice.

    The single items are the most valuable one and the densest one that fit.
    """
    best: Flags = np.zeros(problem.item_count, dtype=np.bool_)
    if not problem.item_count:
        return best
    field = _Field(problem)
    for seeds in _seeds(problem, max(1, min(_SEEDS_AT_ONCE, _ENTRIES_AT_ONCE // max(1, problem.element_count)))):
        paid = field.extend(seeds)
        values = field.values_of(paid)
        place = int(values.argmax())
        if values[place] > problem.value_of(best):
            best = problem.completed_by(paid[place])
    return best


def _seeds(problem: SetUnionKnapsack, at_once: int) -> Iterator[Integers]:
    """Seeds as pairs of items, a few at a time; a single item is paired with itself."""
    weights = problem.sums_over_elements(problem.weights)
    fitting = np.flatnonzero(weights <= problem.limit)
    if not fitting.size:
        return
    prices = problem.sums_over_elements(problem.weights / np.maximum(problem.shares, 1))
    density = problem.values[fitting] / np.maximum(prices[fitting], 1e-300)
    singles = [int(fitting[problem.values[fitting].argmax()]), int(fitting[density.argmax()])]
    yield np.array([(item, item) for item in singles], dtype=np.int64)
    firsts, seconds = (fitting[places] for places in np.triu_indices(fitting.size, k=1))
    for start in range(0, firsts.size, at_once):
        yield np.stack([firsts[start : start + at_once], seconds[start : start + at_once]], axis=1)


class _Field:
    """The matrices that all seeds share; 32 bits where only the order matters, 64 bits where the limit does."""

    def __init__(self, problem: SetUnionKnapsack) -> None:
        self.problem = problem
        self.needs = problem.dense
        self.scale = max(float(problem.weights.max(initial=0)), 1e-300)
        weights = (problem.weights / self.scale)[:, None]
        prices = weights / np.maximum(problem.shares, 1)[:, None]
        self.prices: Floats = (self.needs.T * prices).astype(np.float32)
        self.weights: Floats = (self.needs.T * weights).astype(np.float32)
        self.whole_weights = problem.sums_over_elements(problem.weights)
        self.values: Floats = problem.values / max(float(problem.values.max(initial=0)), 1e-300)
        self.tags = np.random.default_rng(0).random(problem.element_count)

    def values_of(self, paid: Flags) -> Floats:
        """The value of the items that each row of paid elements completes."""
        values: Floats = ((~paid).astype(np.float32) @ self.prices <= 0) @ self.problem.values
        return values

    def extend(self, seeds: Integers) -> Flags:
        """Pay for the elements of each seed that fits and extend it; a seed that does not fit stays empty."""
        paid = self.needs[seeds[:, 0]] | self.needs[seeds[:, 1]]
        room = self.problem.limit - paid @ self.problem.weights
        finished = np.zeros_like(paid)
        rows = np.flatnonzero(room >= 0)
        paid, room = paid[rows], room[rows]
        items = np.arange(self.problem.item_count)
        refused = np.zeros((len(rows), len(items)), dtype=np.bool_)
        while len(rows):
            density = self._densities(paid, room, items)
            density[refused] = -1
            column = density.argmax(axis=1) if len(items) else np.zeros(len(rows), dtype=np.int64)
            is_found = density[np.arange(len(rows)), column] >= 0 if len(items) else np.zeros(len(rows), dtype=np.bool_)
            finished[rows[~is_found]] = paid[~is_found]
            rows, paid, room, refused = rows[is_found], paid[is_found], room[is_found], refused[is_found]
            self._pay(items, column[is_found], paid, room, refused)
            # What does not fit, or is complete, stays so: where that holds for every seed, stop looking.
            is_open = (density >= 0).any(axis=0)
            kept = self._without_repetitions(paid)
            items, refused = items[is_open], refused[np.ix_(kept, is_open)]
            rows, paid, room = rows[kept], paid[kept], room[kept]
        return finished

    def _pay(self, items: Integers, column: Integers, paid: Flags, room: Floats, refused: Flags) -> None:
        """Add to each row its item; one that 32 bits had let through, but is too heavy, is refused for good."""
        new = self.needs[items[column]] & ~paid
        cost = new @ self.problem.weights
        is_fitting = cost <= room
        refused[np.flatnonzero(~is_fitting), column[~is_fitting]] = True
        paid[is_fitting] |= new[is_fitting]
        room[is_fitting] -= cost[is_fitting]

    def _without_repetitions(self, paid: Flags) -> Integers:
        """Rows that differ in what is paid for: seeds that have met go on as one."""
        _, first, group = np.unique(paid @ self.tags, return_index=True, return_inverse=True)
        is_repeated = (paid == paid[first[group]]).all(axis=1)
        is_repeated[first] = False
        return np.flatnonzero(~is_repeated)

    def _densities(self, paid: Flags, room: Floats, items: Integers) -> Floats:
        """The densities of the items for each row; -1 where an item is complete or surely too heavy."""
        unpaid = (~paid).astype(np.float32)
        prices = unpaid @ self.prices[:, items]
        is_out = prices <= 0
        # Only an item that would not fit the least room as a whole can be too heavy.
        heavy = np.flatnonzero(self.whole_weights[items] > room.min(initial=np.inf))
        weights = unpaid @ self.weights[:, items[heavy]]
        is_out[:, heavy] |= weights > (room / self.scale * _SURELY_TOO_HEAVY)[:, None].astype(np.float32)
        prices[is_out] = 1
        density: Floats = self.values[items].astype(np.float32) / prices
        density[is_out] = -1
        return density
