"""The set-union knapsack: items with values need elements with weights, and an element is paid for once.

Choose items so that the weight of the union of their elements is at most the limit and the value is greatest.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class SetUnionKnapsack:
    """Item i needs the elements `elements[starts[i]:starts[i + 1]]`; a weight may be infinite, values may be 0.

    `shares` is the number of items that an element is shared by, as the profit density counts it: a reduced
    problem keeps the numbers of the problem that it came from.
    """

    values: Floats
    weights: Floats
    starts: Integers
    elements: Integers
    limit: float
    shares: Floats

    @classmethod
    def of(cls, values: list[float], weights: list[float], elements_of: list[list[int]], limit: float) -> "SetUnionKnapsack":
        """Build a problem from plain lists: the elements that each item needs, without repetition."""
        starts = np.zeros(len(elements_of) + 1, dtype=np.int64)
        np.cumsum([len(needed) for needed in elements_of], out=starts[1:])
        elements = np.fromiter((element for needed in elements_of for element in needed), np.int64, int(starts[-1]))
        return cls(
            values=np.array(values, dtype=np.float64),
            weights=np.array(weights, dtype=np.float64),
            starts=starts,
            elements=elements,
            limit=limit,
            shares=np.bincount(elements, minlength=len(weights)).astype(np.float64),
        )

    @property
    def item_count(self) -> int:
        return len(self.values)

    @property
    def element_count(self) -> int:
        return len(self.weights)

    @cached_property
    def item_of_entry(self) -> Integers:
        """The item of each entry of `elements`."""
        return np.repeat(np.arange(self.item_count), np.diff(self.starts))

    @cached_property
    def dense(self) -> Flags:
        """One row per item, one column per element."""
        needs = np.zeros((self.item_count, self.element_count), dtype=np.bool_)
        needs[self.item_of_entry, self.elements] = True
        return needs

    def needed_by(self, item: int) -> Integers:
        """The elements of one item."""
        return self.elements[self.starts[item] : self.starts[item + 1]]

    def union_of(self, chosen: Flags) -> Flags:
        """The elements that the chosen items need."""
        union = np.zeros(self.element_count, dtype=np.bool_)
        union[self.elements[chosen[self.item_of_entry]]] = True
        return union

    def completed_by(self, union: Flags) -> Flags:
        """Every item all of whose elements are in the union."""
        missing = np.bincount(self.item_of_entry, weights=~union[self.elements], minlength=self.item_count)
        complete: Flags = missing == 0
        return complete

    def sums_over_elements(self, numbers: Floats) -> Floats:
        """For each item, the sum of the numbers of its elements."""
        sums = np.bincount(self.item_of_entry, weights=numbers[self.elements], minlength=self.item_count)
        return sums.astype(np.float64)

    def weight_of(self, chosen: Flags) -> float:
        """The weight of the union of the chosen items."""
        return float(self.weights[self.union_of(chosen)].sum())

    def value_of(self, chosen: Flags) -> float:
        """The value of the chosen items."""
        return float(self.values[chosen].sum())


@dataclass(frozen=True, eq=False)
class Reduction:
    """A smaller problem with the same optimum, and the way back to the items of the original."""

    problem: SetUnionKnapsack
    group_of_item: Integers

    FREE = -1
    HOPELESS = -2

    def expand(self, chosen: Flags) -> Flags:
        """The original items behind the chosen ones, with every item that costs nothing."""
        known = np.append(chosen, [False, True])
        return known[self.group_of_item]


def without_hopeless_items(problem: SetUnionKnapsack) -> Reduction:
    """Drop items that exceed the limit alone, elements that only they need, and weightless ones; cheap however large."""
    is_kept = problem.sums_over_elements(problem.weights) <= problem.limit
    is_entry_kept = is_kept[problem.item_of_entry] & (problem.weights[problem.elements] > 0)
    counts = np.bincount(problem.item_of_entry[is_entry_kept], minlength=problem.item_count)
    used, elements = np.unique(problem.elements[is_entry_kept], return_inverse=True)
    starts = np.zeros(int(is_kept.sum()) + 1, dtype=np.int64)
    np.cumsum(counts[is_kept], out=starts[1:])
    reduced = SetUnionKnapsack(
        values=problem.values[is_kept],
        weights=problem.weights[used],
        starts=starts,
        elements=elements.astype(np.int64),
        limit=problem.limit,
        shares=problem.shares[used],
    )
    return Reduction(reduced, np.where(is_kept, np.cumsum(is_kept) - 1, Reduction.HOPELESS))


def reduce(problem: SetUnionKnapsack, *, merge_items: bool) -> Reduction:
    """Drop hopeless items and weightless elements, merge elements that the same items need.

    With `merge_items`, items that need the same elements become one; without, items keep their own densities and
    only the bookkeeping shrinks. The optimum stays the same either way.
    """
    hopeless = problem.sums_over_elements(problem.weights) > problem.limit
    kept = ~hopeless[problem.item_of_entry] & (problem.weights[problem.elements] > 0)
    items_of: dict[int, list[int]] = {}
    for item, element in zip(problem.item_of_entry[kept].tolist(), problem.elements[kept].tolist(), strict=True):
        items_of.setdefault(element, []).append(item)
    merged: dict[tuple[int, ...], list[int]] = {}
    for element, items in items_of.items():
        merged.setdefault(tuple(items), []).append(element)
    return _assemble(problem, hopeless, merged, merge_items=merge_items)


def _assemble(
    problem: SetUnionKnapsack, hopeless: Flags, merged: dict[tuple[int, ...], list[int]], *, merge_items: bool
) -> Reduction:
    elements_of: list[list[int]] = [[] for _ in range(problem.item_count)]
    for number, items in enumerate(merged):
        for item in items:
            elements_of[item].append(number)
    group_of_item = np.full(problem.item_count, Reduction.FREE, dtype=np.int64)
    groups: dict[tuple[object, ...], int] = {}
    values: list[float] = []
    for item, needed in enumerate(elements_of):
        if hopeless[item]:
            group_of_item[item] = Reduction.HOPELESS
        elif needed:
            group = groups.setdefault(tuple(needed) if merge_items else (item, "alone"), len(groups))
            if group == len(values):
                values.append(0.0)
            values[group] += float(problem.values[item])
            group_of_item[item] = group
    representatives = {int(group): item for item, group in reversed(list(enumerate(group_of_item))) if group >= 0}
    reduced = SetUnionKnapsack.of(
        values=values,
        weights=[float(problem.weights[same].sum()) for same in merged.values()],
        elements_of=[elements_of[representatives[group]] for group in range(len(values))],
        limit=problem.limit,
    )
    if not merge_items:
        # Weighted by weight / shares, the merged element has the same density as its parts.
        shares = np.array([problem.shares[same[0]] for same in merged.values()], dtype=np.float64)
        reduced = SetUnionKnapsack(reduced.values, reduced.weights, reduced.starts, reduced.elements, reduced.limit, shares)
    return Reduction(reduced, group_of_item)
