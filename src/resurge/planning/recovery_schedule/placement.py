"""Put recovered partitions on nodes; where the free capacity is too fragmented for a plan, give up the least of it."""

import heapq
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from resurge.planning.recovery_schedule.problem import RecoveryProblem
from resurge.planning.solvers.set_union_knapsack import Flags

Placement = Mapping[str, str]


def place(problem: RecoveryProblem, partitions: Iterable[str]) -> dict[str, str] | None:
    """Place every partition without over-filling a node, or None if that was not found to be possible.

    Largest first, each on the node with the most free capacity, as the paper does; where that fails, each on the
    node that it fills best, which leaves larger gaps for those to come.
    """
    placed, left_over = place_on_emptiest(problem, partitions)
    if left_over:
        placed, left_over = _place_on_fullest(problem, partitions)
    return None if left_over else placed


def place_on_emptiest(problem: RecoveryProblem, partitions: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Place the largest partitions first, each on the node with the most free capacity; say which did not fit."""
    nodes = problem.nodes or {}
    emptiest = [(-problem.with_tolerance(free), order, name) for order, (name, free) in enumerate(nodes.items())]
    heapq.heapify(emptiest)
    placed: dict[str, str] = {}
    left_over: list[str] = []
    for partition in largest_first(problem, partitions):
        cost = problem.partitions[partition]
        if not emptiest or cost > -emptiest[0][0]:
            left_over.append(partition)
            continue
        free, order, name = emptiest[0]
        heapq.heapreplace(emptiest, (free + cost, order, name))
        placed[partition] = name
    return placed, left_over


def _place_on_fullest(problem: RecoveryProblem, partitions: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    free = _free_with_tolerance(problem)
    placed: dict[str, str] = {}
    left_over: list[str] = []
    for partition in largest_first(problem, partitions):
        node = _fullest_that_takes(free, problem.partitions[partition])
        if node is None:
            left_over.append(partition)
        else:
            free[node] -= problem.partitions[partition]
            placed[partition] = node
    return placed, left_over


def _fullest_that_takes(free: Mapping[str, float], cost: float) -> str | None:
    return min((name for name, room in free.items() if room >= cost), key=free.__getitem__, default=None)


def _free_with_tolerance(problem: RecoveryProblem) -> dict[str, float]:
    return {name: problem.with_tolerance(free) for name, free in (problem.nodes or {}).items()}


def largest_first(problem: RecoveryProblem, partitions: Iterable[str]) -> list[str]:
    """Order partitions by falling cost; equal costs keep their order."""
    return sorted(partitions, key=lambda name: -problem.partitions[name])


def repaired(problem: RecoveryProblem, chosen: Flags) -> tuple[Flags, dict[str, str]]:
    """Turn chosen queries into ones that can be placed, with their placement.

    While something cannot be placed, partitions of at least the size of the smallest such are given up together with
    their queries, least priority for their cost first, about half of what is in excess at a time. What room then
    remains is filled with other queries.
    """
    chosen = chosen.copy()
    while True:
        needed = _names(problem, problem.knapsack.union_of(chosen))
        placed, left_over = place_on_emptiest(problem, needed)
        if left_over:
            placed, left_over = _place_on_fullest(problem, needed)
        if not left_over:
            return _filled(problem, chosen, placed)
        excess = problem.cost_of(left_over) / 2
        while excess >= 0 and chosen.any():
            chosen, freed = _without_cheapest_loss(problem, chosen, problem.partitions[left_over[-1]])
            excess -= max(freed, problem.partitions[left_over[-1]])


def _names(problem: RecoveryProblem, union: Flags) -> list[str]:
    return [problem.partition_names[place] for place in union.nonzero()[0]]


def _without_cheapest_loss(problem: RecoveryProblem, chosen: Flags, at_least: float) -> tuple[Flags, float]:
    """Give up the partition whose queries have least priority for its cost; say how much cost that frees."""
    knapsack = problem.knapsack
    is_entry_chosen = chosen[knapsack.item_of_entry]
    items, elements = knapsack.item_of_entry[is_entry_chosen], knapsack.elements[is_entry_chosen]
    lost = np.bincount(elements, weights=knapsack.values[items], minlength=knapsack.element_count)
    union = knapsack.union_of(chosen)
    is_candidate = union & (knapsack.weights >= at_least)
    loss_per_cost = np.full(knapsack.element_count, np.inf)
    np.divide(lost, np.maximum(knapsack.weights, 1e-300), out=loss_per_cost, where=is_candidate)
    remaining = chosen.copy()
    remaining[items[elements == int(loss_per_cost.argmin())]] = False
    freed = union & ~knapsack.union_of(remaining)
    return remaining, float(knapsack.weights[freed].sum())


def _filled(problem: RecoveryProblem, chosen: Flags, placed: dict[str, str]) -> tuple[Flags, dict[str, str]]:
    """Add queries by priority per missing cost, as long as their missing partitions find room beside the others."""
    knapsack = problem.knapsack
    free = _free_with_tolerance(problem)
    for partition, node in placed.items():
        free[node] -= problem.partitions[partition]
    room = knapsack.limit - float(knapsack.weights[knapsack.union_of(chosen)].sum())
    open_weights = np.where(knapsack.union_of(chosen), 0.0, knapsack.weights)
    missing_cost = knapsack.sums_over_elements(open_weights)
    candidates = np.flatnonzero(~chosen & (missing_cost <= room))
    density = knapsack.values[candidates] / np.maximum(missing_cost[candidates], 1e-300)
    for item in candidates[np.argsort(-density, kind="stable")].tolist():
        missing = [name for name in problem.queries[problem.query_names[item]].partitions if name not in placed]
        cost = problem.cost_of(missing)
        additions = _additions(problem, free, missing) if cost <= room else None
        if additions is None:
            continue
        for partition, node in additions.items():
            free[node] -= problem.partitions[partition]
            placed[partition] = node
        room -= cost
        chosen[item] = True
    return chosen, placed


def _additions(problem: RecoveryProblem, free: Mapping[str, float], missing: Sequence[str]) -> dict[str, str] | None:
    free = dict(free)
    additions: dict[str, str] = {}
    for partition in largest_first(problem, missing):
        node = _fullest_that_takes(free, problem.partitions[partition])
        if node is None:
            return None
        free[node] -= problem.partitions[partition]
        additions[partition] = node
    return additions
