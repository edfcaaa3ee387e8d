"""One pass by profit density over a set-union knapsack, for problems of any size."""

import heapq
from collections.abc import Callable

import numpy as np

from resurge.planning.solvers.set_union_knapsack import Flags, Floats, SetUnionKnapsack


def never() -> bool:
    """There is always time."""
    return False


def choose_by_density(
    problem: SetUnionKnapsack,
    start: Flags | None = None,
    is_out_of_time: Callable[[], bool] = never,
    prices: Floats | None = None,
) -> Flags:
    """Extend a feasible start by the item of highest profit density that fits, until none does.

    The density of an item is its value over the sum of price / shares of its elements not yet paid for; the prices
    are the weights unless others are given. An item that does not fit now never will: what a later choice saves it,
    that choice has taken from the room left. So each item is settled once, and the heap holds one entry for each
    change of a density: O(entries x log entries). Out of time, what was chosen so far is the answer.
    """
    chosen = np.zeros(problem.item_count, dtype=np.bool_) if start is None else start.copy()
    return _Pass(problem, chosen, problem.weights if prices is None else prices).run(is_out_of_time)


class _Pass:
    """The state of one pass, in plain lists: numpy is slow one number at a time."""

    def __init__(self, problem: SetUnionKnapsack, chosen: Flags, prices: Floats) -> None:
        union = problem.union_of(chosen)
        priced = np.where(union, 0.0, prices / np.maximum(problem.shares, 1.0))
        self.problem = problem
        self.chosen = chosen
        self.room = problem.limit - float(problem.weights[union].sum())
        self.values: list[float] = problem.values.tolist()
        self.weights: list[float] = problem.weights.tolist()
        self.priced: list[float] = priced.tolist()
        self.is_open: list[bool] = (~union).tolist()
        self.denominators: list[float] = problem.sums_over_elements(priced).tolist()
        open_entries = (~union[problem.elements]).astype(np.float64)
        self.missing: list[float] = np.bincount(
            problem.item_of_entry, weights=open_entries, minlength=problem.item_count
        ).tolist()
        self.settled: list[bool] = chosen.tolist()
        self.heap = [(-self._density(item), item) for item in range(problem.item_count) if not self.settled[item]]
        heapq.heapify(self.heap)

    def _density(self, item: int) -> float:
        # Zero by count, not by subtraction: rounding must not hide that an item is free.
        if self.missing[item] == 0 or self.denominators[item] <= 0:
            return float("inf")
        return self.values[item] / self.denominators[item]

    def run(self, is_out_of_time: Callable[[], bool]) -> Flags:
        items_of = _items_of_elements(self.problem)
        while self.heap:
            key, item = heapq.heappop(self.heap)
            if self.settled[item] or -key < self._density(item):
                continue
            self.settled[item] = True
            if is_out_of_time():
                break
            opened = [element for element in self.problem.needed_by(item).tolist() if self.is_open[element]]
            cost = sum(self.weights[element] for element in opened)
            if cost > self.room:
                continue
            self.chosen[item] = True
            self.room -= cost
            self._pay(opened, items_of)
        return self.chosen

    def _pay(self, opened: list[int], items_of: Callable[[int], list[int]]) -> None:
        touched: set[int] = set()
        for element in opened:
            self.is_open[element] = False
            for item in items_of(element):
                if not self.settled[item]:
                    self.missing[item] -= 1
                    self.denominators[item] -= self.priced[element]
                    touched.add(item)
        for item in touched:
            heapq.heappush(self.heap, (-self._density(item), item))


def _items_of_elements(problem: SetUnionKnapsack) -> Callable[[int], list[int]]:
    order = np.argsort(problem.elements, kind="stable")
    items: list[int] = problem.item_of_entry[order].tolist()
    starts: list[int] = np.searchsorted(problem.elements[order], np.arange(problem.element_count + 1)).tolist()
    return lambda element: items[starts[element] : starts[element + 1]]
