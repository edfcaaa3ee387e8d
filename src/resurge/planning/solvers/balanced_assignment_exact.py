"""Cheapest balanced assignment by constraint programming (CP-SAT)."""

from dataclasses import dataclass

import numpy as np

from resurge.planning.solvers.balanced_assignment import AssignmentProblem, Bins, Filling

LARGEST_COST_TICKS = 2**32
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
    chosen = {(item, into): model.new_bool_var("") for item, into in zip(*map(np.ndarray.tolist, np.nonzero(problem.is_allowed)))}
    by_item: dict[int, list[int]] = {item: [] for item in range(problem.item_count)}
    by_bin: dict[int, list[int]] = {into: [] for into in range(len(problem.classes))}
    for item, into in chosen:
        by_item[item].append(into)
        by_bin[into].append(item)
    for item, bins in by_item.items():
        model.add(sum(chosen[item, into] for into in bins) == problem.copies)
        for same_class in _by_class(problem, bins):
            model.add_at_most_one(chosen[item, into] for into in same_class)
    if problem.capacity != np.inf:
        _limit_loads(model, problem, chosen, by_bin)
    _minimise(model, problem, chosen)
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
    bins_found = [[into for into in by_item[item] if solver.boolean_value(chosen[item, into])] for item in by_item]
    return ExactAssignment(bins_found, is_proven=status == cp_model.OPTIMAL)


def _by_class(problem: AssignmentProblem, bins: list[int]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for into in bins:
        groups.setdefault(int(problem.classes[into]), []).append(into)
    return [group for group in groups.values() if len(group) > 1]
