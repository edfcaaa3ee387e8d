"""Start from the placement that exists, and change it only as far as that is worth it."""

from resurge.planning.checkpoint_placement.problem import CheckpointProblem
from resurge.planning.solvers.balanced_assignment import (
    TIE,
    AssignmentProblem,
    Bins,
    Filling,
    Swap,
    best_move,
    best_swap,
    copy_grid,
    filled_in_regret_order,
)


def kept_copies(problem: CheckpointProblem) -> Filling:
    """The copies of the current placement that a new one may keep: suitable nodes, not too many, none over-filled."""
    filling = Filling(problem.assignment)
    group_at = {name: index for index, name in enumerate(problem.group_names)}
    node_at = {name: index for index, name in enumerate(problem.node_names)}
    costs = problem.assignment.costs
    for group, nodes in problem.current.items():
        item = group_at[group]
        for node in sorted((node_at[name] for name in nodes), key=lambda node: float(costs[item, node])):
            is_wanted = len(filling.bins[item]) < problem.copies
            if is_wanted and filling.suits(item)[node] and filling.fits(item)[node]:
                filling.put(item, node)
    return filling


def updated(problem: CheckpointProblem, target: Filling) -> Filling:
    """Change the current placement towards a target: the most useful moves first, until the rest is not worth it.

    The rest is not worth it when the score is within the threshold of the target's.
    """
    if not problem.current:
        return target
    start = filled_in_regret_order(problem.assignment, kept_copies(problem))
    if start is None:
        return target
    goal = target.cost() + problem.threshold + _rounding(target)
    current = Filling(problem.assignment, start.bins)
    while current.cost() > goal:
        if not (_make_best_move(current) or _make_best_swap(current)):
            # Capacity blocks every single step; go the other way, from the target back towards what exists.
            return _without_unneeded_moves(problem.assignment, start.bins, target.bins, goal)
    return current


def _rounding(filling: Filling) -> float:
    return 1e-9 * max(1.0, abs(filling.cost()))


def _copies(filling: Filling) -> list[tuple[int, int]]:
    return [(item, chosen) for item, bins in enumerate(filling.bins) for chosen in bins]


def _make_best_move(filling: Filling) -> bool:
    moves = [(*best_move(filling, item, old_bin), item, old_bin) for item, old_bin in _copies(filling)]
    gain, new_bin, item, old_bin = max(moves, default=(0.0, 0, 0, 0))
    if gain <= TIE:
        return False
    filling.move(item, old_bin, new_bin)
    return True


def _make_best_swap(filling: Filling) -> bool:
    grid = copy_grid(filling)
    swaps: list[Swap] = [
        swap for item, old_bin in _copies(filling) if (swap := best_swap(filling, item, old_bin, grid)) is not None
    ]
    if not swaps:
        return False
    max(swaps, key=lambda swap: swap.gain).apply(filling)
    return True


def _without_unneeded_moves(problem: AssignmentProblem, start: Bins, target: Bins, goal: float) -> Filling:
    """Undo whole key groups' moves, the least useful first, while the score stays within the goal."""
    filling = Filling(problem, target)
    costs = problem.costs

    def gain(item: int) -> float:
        return float(costs[item, start[item]].sum() - costs[item, target[item]].sum())

    for item in sorted((item for item in range(len(start)) if set(start[item]) != set(target[item])), key=gain):
        _replace(filling, item, start[item])
        if filling.cost() > goal or not filling.is_within_capacity():
            _replace(filling, item, target[item])
    return filling


def _replace(filling: Filling, item: int, bins: list[int]) -> None:
    for old_bin in tuple(filling.bins[item]):
        filling.take(item, old_bin)
    for new_bin in bins:
        filling.put(item, new_bin)
