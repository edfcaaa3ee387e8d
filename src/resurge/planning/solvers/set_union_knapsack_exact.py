"""The set-union knapsack as a model for CP-SAT, with the elements put into bins where there are any."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from resurge.planning.solvers.set_union_knapsack import Flags, SetUnionKnapsack

LARGEST_TOTAL = 2**52
"""Scaled numbers stay below this, far from the solver's 64 bits and within what its bounds represent exactly."""


@dataclass(frozen=True, eq=False)
class Solved:
    """The best choice found, whether it was proven best, and the bin of each element if there were bins."""

    chosen: Flags
    is_proven: bool
    bin_of: dict[int, int]


@dataclass(frozen=True)
class Scaled:
    """Numbers as integers of one unit."""

    numbers: list[int]
    unit: Fraction


def scaled(numbers: Sequence[float]) -> Scaled:
    """Count numbers in a decimal unit small enough for all of them, or nearly so.

    Decimals as written (0.1 is a tenth) become exact integers as long as their total allows it; beyond, they are
    rounded down to about 15 digits of the total.
    """
    exact = [Fraction(str(float(number))) for number in numbers]
    total = sum(exact)
    unit = Fraction(1)
    while any(number % unit for number in exact) and total / unit * 10 < LARGEST_TOTAL:
        unit /= 10
    while total / unit >= LARGEST_TOTAL:
        unit *= 10
    return Scaled([int(number // unit) for number in exact], unit)


def solve(
    problem: SetUnionKnapsack,
    start: Flags,
    time_limit_s: float,
    bins: Sequence[float] = (),
    workers: int = 2,
) -> Solved:
    """Maximise the value, from a feasible start as a hint, until proven or out of time.

    The proof holds to about 15 digits of the total weight and value, which is where the model rounds. With `bins`, every element of the union is also put into a bin, and no bin takes more than its size. The search
    is repeatable only if it ends before the time limit.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    items = [model.new_bool_var(f"item{item}") for item in range(problem.item_count)]
    elements = [model.new_bool_var(f"element{element}") for element in range(problem.element_count)]
    for item, element in zip(problem.item_of_entry.tolist(), problem.elements.tolist(), strict=True):
        model.add_implication(items[item], elements[element])
    is_too_heavy = problem.weights > problem.limit
    for element in is_too_heavy.nonzero()[0].tolist():
        model.add(elements[element] == 0)
    weights = scaled(np.where(is_too_heavy, 0.0, problem.weights).tolist())
    model.add(_dot(elements, weights.numbers) <= _units(problem.limit, weights))
    placed = _add_bins(model, elements, weights, bins)
    values = scaled(problem.values.tolist())
    model.maximize(_dot(items, values.numbers))
    for item, is_chosen in zip(items, start.tolist(), strict=True):
        model.add_hint(item, is_chosen)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = workers
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solved(start, False, {})
    chosen = np.array([solver.boolean_value(item) for item in items], dtype=np.bool_)
    bin_of = {
        element: place
        for element, row in enumerate(placed)
        for place, variable in enumerate(row)
        if solver.boolean_value(variable)
    }
    return Solved(chosen, status == cp_model.OPTIMAL, bin_of)


def _units(size: float, weights: Scaled) -> int:
    return min(sum(weights.numbers), int(Fraction(size) // weights.unit))


def _dot(variables: Sequence[Any], numbers: Sequence[int]) -> Any:
    from ortools.sat.python import cp_model

    return cp_model.LinearExpr.weighted_sum(list(variables), list(numbers))


def _add_bins(model: Any, elements: Sequence[Any], weights: Scaled, bins: Sequence[float]) -> list[list[Any]]:
    if not bins:
        return []
    placed = [[model.new_bool_var(f"element{e}bin{b}") for b in range(len(bins))] for e in range(len(elements))]
    for element, row in zip(elements, placed, strict=True):
        model.add(sum(row) == element)
    for place, size in enumerate(bins):
        inside = [row[place] for row in placed]
        model.add(_dot(inside, weights.numbers) <= _units(size, weights))
    return placed
