"""What the local searches of the set-union knapsack share: the problem as matrices, and when to stop."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from resurge.planning.solvers.set_union_knapsack import Flags, Floats, SetUnionKnapsack

EXACT_IN_FLOAT32 = 2**24
_TINY = 1e-30


@dataclass(frozen=True, eq=False)
class Arena:
    """The problem as dense matrices: `needs` has a row per item, `needed_by` a row per element."""

    needs: Floats
    needed_by: Floats
    weights: Floats
    values: Floats
    total_weight: float
    total_value: float
    limit: float
    is_out_of_time: Callable[[], bool]

    @classmethod
    def of(cls, problem: SetUnionKnapsack, is_out_of_time: Callable[[], bool]) -> "Arena":
        """Lay out a problem; small integers in 32 bits, where their sums are exact and twice as fast."""
        is_short = _is_exact_in_32_bits(problem)
        kind = np.float32 if is_short else np.float64
        needs: Floats = problem.dense.astype(kind)
        return cls(
            needs=needs,
            needed_by=np.ascontiguousarray(needs.T),
            weights=problem.weights.astype(kind),
            values=problem.values.astype(kind),
            total_weight=float(problem.weights.sum()),
            total_value=float(problem.values.sum()),
            limit=math.floor(problem.limit) if is_short else problem.limit,
            is_out_of_time=is_out_of_time,
        )

    @property
    def price(self) -> float:
        """What a unit of weight is worth, roughly."""
        return self.total_value / max(self.total_weight, _TINY)

    @property
    def nearly_nothing(self) -> float:
        """A weight to divide by where the true one is zero."""
        return max(1e-9 * self.total_weight, _TINY)

    @property
    def least_gain(self) -> float:
        """A smaller improvement is a rounding error."""
        return 1e-9 * self.total_value

    def value_of(self, chosen: Flags) -> float:
        """The value of the chosen items."""
        return float(self.values[chosen].sum(dtype=np.float64))

    def left_by(self, excluded: Flags) -> Flags:
        """The items that need no excluded element."""
        left: Flags = self.needed_by[excluded].sum(axis=0) == 0
        return left

    def excluded_by(self, chosen: Flags) -> Flags:
        """The elements that no chosen item needs."""
        excluded: Flags = self.needs[chosen].sum(axis=0) == 0
        return excluded


def _is_exact_in_32_bits(problem: SetUnionKnapsack) -> bool:
    return all(
        float(numbers.sum()) < EXACT_IN_FLOAT32 and bool((numbers == np.floor(numbers)).all())
        for numbers in (problem.weights, problem.values)
    )
