"""Active repartitioning: from the fullest node to the emptiest, blind to levels, copies and sizes."""

import numpy as np
from numpy.typing import NDArray

from resurge.planning.key_group_moves.placing import Placing, evacuated
from resurge.planning.key_group_moves.plan import MovePlan, move_plan
from resurge.planning.key_group_moves.problem import MoveProblem


def plan(problem: MoveProblem) -> MovePlan:
    """Move partitions from the fullest node to the emptiest, while the fuller of the two gets emptier (ELASTIC section 7.2).

    Guarantees the constraints, and that no move of its kind would help; nothing about the score. It stops when a move lowers
    the fuller node's utilisation by no more than `move_cost`. Takes time proportional to moves times partitions of a node.
    """
    return move_plan(problem, "greedy", repartitioned(problem).where, optimal=None)


def repartitioned(problem: MoveProblem) -> Placing:
    """The placement of `plan`."""
    placing = evacuated(problem, _emptiest)
    stays = np.flatnonzero(~placing.table.drains)
    for _ in range(2 * len(placing.where)):
        used = (placing.load / placing.table.capacity)[stays]
        if not len(used) or not _move_once(placing, int(stays[np.argmax(used)]), int(stays[np.argmin(used)])):
            break
    return placing


def _emptiest(placing: Placing, partition: int, possible: NDArray[np.int64]) -> int:
    return int(possible[np.argmin((placing.load / placing.table.capacity)[possible])])


def _move_once(placing: Placing, full: int, empty: int) -> bool:
    """Move the partition that makes the fuller of two nodes emptiest, if that is worth a move."""
    table, load = placing.table, placing.load
    here = np.flatnonzero(placing.where == full)
    cost = table.cost[here]
    after = np.maximum((load[full] - cost) / table.capacity[full], (load[empty] + cost) / table.capacity[empty])
    worth = load[full] / table.capacity[full] - placing.problem.move_cost
    for index in np.argsort(after, kind="stable").tolist():
        if after[index] >= worth:
            return False
        if placing.targets(int(here[index]))[empty]:
            placing.move(int(here[index]), empty)
            return True
    return False
