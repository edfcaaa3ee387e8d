"""Cheapest balanced assignment by constraint programming (CP-SAT)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from resurge.planning.solvers.balanced_assignment import AssignmentProblem, Bins

LARGEST_COST_TICKS = 2**30
LARGEST_LOAD_TICKS = 2**40


@dataclass(frozen=True)
class ExactAssignment:
    """The best bins found; None with `is_proven` means that no assignment is feasible."""

    bins: Bins | None
    is_proven: bool


def cheapest_bins(problem: AssignmentProblem, hint: Bins | None, time_limit_s: float) -> ExactAssignment:
    """Find cheapest bins, or the best within the time limit; `hint` is a feasible assignment to start from."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    chosen = _model(model, problem)
    for (item, into), variable in chosen.items():
        if hint is not None:
            model.add_hint(variable, into in hint[item])
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = 2
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return ExactAssignment(None, is_proven=status == cp_model.INFEASIBLE)
    bins: Bins = [[] for _ in range(problem.item_count)]
    for (item, into), variable in chosen.items():
        if solver.boolean_value(variable):
            bins[item].append(into)
    return ExactAssignment(bins, is_proven=status == cp_model.OPTIMAL)


def _model(model: Any, problem: AssignmentProblem) -> dict[tuple[int, int], Any]:
    """One Boolean per item and allowed bin; copies, classes, capacity and the cost to minimise."""
    allowed = np.argwhere(problem.is_allowed).tolist()
    chosen = {(item, into): model.new_bool_var("") for item, into in allowed}
    of_item: list[list[Any]] = [[] for _ in range(problem.item_count)]
    of_class: dict[tuple[int, int], list[Any]] = {}
    in_bin: list[list[Any]] = [[] for _ in problem.classes]
    load_ticks = np.rint(problem.weights * _scale(LARGEST_LOAD_TICKS, problem.capacity))
    for (item, into), variable in chosen.items():
        of_item[item].append(variable)
        of_class.setdefault((item, int(problem.classes[into])), []).append(variable)
        in_bin[into].append(int(load_ticks[item]) * variable)
    for variables in of_item:
        model.add(sum(variables) == problem.copies)
    for variables in of_class.values():
        model.add_at_most_one(variables)
    if problem.capacity != np.inf:
        for loads in in_bin:
            model.add(sum(loads) <= LARGEST_LOAD_TICKS)
    cost_scale = _scale(LARGEST_COST_TICKS, float(np.abs(problem.costs).max(initial=0.0)))
    model.minimize(sum(round(problem.costs[item, into] * cost_scale) * chosen[item, into] for item, into in chosen))
    return chosen


def _scale(ticks: int, largest: float) -> float:
    return 0.0 if largest in (0.0, np.inf) else ticks / largest
