"""The best placement by constraint programming (CP-SAT)."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from resurge.planning.key_group_moves.placing import Places, Placing
from resurge.planning.key_group_moves.problem import MoveProblem, MoveTable

TICKS = 2**30


@dataclass(frozen=True)
class Solved:
    """The best placement found; None with `is_proven` means that none is feasible."""

    where: Places | None
    is_proven: bool


def best_places(problem: MoveProblem, hint: Places | None, time_limit_s: float) -> Solved:
    """Find the placement with the lowest score, or the best within the time limit; `hint` is a feasible one to start from."""
    from ortools.sat.python import cp_model

    table, model = problem.table, cp_model.CpModel()
    chosen = {(partition, node): model.new_bool_var("") for partition, node in np.argwhere(table.is_allowed).tolist()}
    _constrain(model, problem, chosen)
    _minimise(model, problem, chosen)
    if hint is not None:
        for (partition, node), variable in chosen.items():
            model.add_hint(variable, bool(hint[partition] == node))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = 2
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solved(None, is_proven=status == cp_model.INFEASIBLE)
    where = table.home.copy()
    for (partition, node), variable in chosen.items():
        if solver.boolean_value(variable):
            where[partition] = node
    return Solved(where, is_proven=status == cp_model.OPTIMAL)


def _constrain(model: Any, problem: MoveProblem, chosen: dict[tuple[int, int], Any]) -> None:
    table = problem.table
    of_partition: list[list[Any]] = [[] for _ in table.home]
    for (partition, _), variable in chosen.items():
        of_partition[partition].append(variable)
    for variables in of_partition:
        model.add_exactly_one(variables)
    _keep_capacities(model, problem, chosen)
    _keep_apart(model, table, chosen)
    if problem.most_moves is not None:
        moves = [
            variable
            for (partition, node), variable in chosen.items()
            if node != table.home[partition] and not table.drains[table.home[partition]]
        ]
        model.add(sum(moves) <= problem.most_moves)


def _keep_capacities(model: Any, problem: MoveProblem, chosen: dict[tuple[int, int], Any]) -> None:
    """A node that takes something ends within its capacity."""
    table, start = problem.table, Placing(problem)
    for node in np.flatnonzero(~table.drains).tolist():
        here = [(partition, variable) for (partition, place), variable in chosen.items() if place == node]
        scale = TICKS / table.limit[node]
        # Rounding up never calls feasible what is not; the tolerance of the capacity covers what that loses.
        load = sum(int(np.ceil(table.cost[partition] * scale - 0.5)) * variable for partition, variable in here)
        if start.load[node] <= table.limit[node]:
            model.add(load <= TICKS)
            continue
        takes = model.new_bool_var("")
        for partition, variable in here:
            if table.home[partition] != node:
                model.add_implication(variable, takes)
        model.add(load <= TICKS).only_enforce_if(takes)


def _keep_apart(model: Any, table: MoveTable, chosen: dict[tuple[int, int], Any]) -> None:
    pairs = {(min(one, other), max(one, other)) for one, others in table.apart.items() for other in others}
    of_partition: dict[int, list[int]] = {}
    for partition, node in chosen:
        of_partition.setdefault(partition, []).append(node)
    for one, other in sorted(pairs):
        for first, second in product(of_partition.get(one, ()), of_partition.get(other, ())):
            both_stay = first == table.home[one] and second == table.home[other]
            if table.domain[first] == table.domain[second] and not both_stay:
                model.add_bool_or(chosen[one, first].negated(), chosen[other, second].negated())


def _minimise(model: Any, problem: MoveProblem, chosen: dict[tuple[int, int], Any]) -> None:
    table = problem.table
    stays = ~table.drains
    largest = max(
        float(table.cost.sum() / table.capacity[stays].min()) if stays.any() else 0.0, float(table.move_price.max(initial=0.0))
    )
    scale = TICKS / largest if largest > 0 else 0.0
    peaks = [model.new_int_var(0, 2 * TICKS, "") for _ in range(table.level_count)]
    for level, node in product(range(table.level_count), np.flatnonzero(stays).tolist()):
        load = sum(
            round(table.cost[partition] / table.capacity[node] * scale) * variable
            for (partition, place), variable in chosen.items()
            if place == node and table.level[partition] == level
        )
        model.add(load <= peaks[level])
    price = sum(round(table.move_price[partition, node] * scale) * variable for (partition, node), variable in chosen.items())
    model.minimize(sum(peaks) + price)
