"""Even levels with few and cheap moves: what a level waits for is lowered, and copies are used where they lie."""

import numpy as np
from numpy.typing import NDArray

from resurge.planning.key_group_moves.greedy import repartitioned
from resurge.planning.key_group_moves.placing import Placing, evacuated
from resurge.planning.key_group_moves.plan import MovePlan, move_plan
from resurge.planning.key_group_moves.problem import MoveProblem

TIE = 1e-12
MOST_ROUNDS = 20
MOST_SWAPS_TRIED = 1_000
"""The most promising pairs that a round tries; those that constraints forbid are skipped."""
MOST_SWAPS_IN_VAIN = 4
"""Swaps in a row that do not lower the score: where several nodes are as full as each other, only the last one does."""


def plan(problem: MoveProblem) -> MovePlan:
    """Lower the fullest node of each level while that is worth the moves; then undo, redirect and swap what gains.

    Guarantees the constraints, a score never above that of `greedy` and never above that of staying where no node
    drains. Measured, within 2 % of the optimum on average. Takes time proportional to moves times nodes times the partitions
    of a node: 1,000 partitions on 100 nodes in about a second, 10,000 on 1,000 in some 30.
    """
    return move_plan(problem, "balanced", placed(problem).where, optimal=None)


def placed(problem: MoveProblem) -> Placing:
    """The placement of `plan`."""
    starts = [evacuated(problem, _cheapest), repartitioned(problem)]
    return min((_improved(start) for start in starts), key=Placing.score)


def _cheapest(placing: Placing, partition: int, possible: NDArray[np.int64]) -> int:
    """The node where a partition adds least to the score; among equals the emptiest."""
    table = placing.table
    used = placing.utilisation[table.level[partition]]
    raised = np.maximum(used[possible] + table.cost[partition] / table.capacity[possible] - used.max(), 0.0)
    price = raised + table.move_price[partition, possible]
    return int(possible[np.lexsort((used[possible], price))[0]])


def _improved(placing: Placing) -> Placing:
    """Walk downhill, then repair, as long as the score falls; a start that may stay as it is counts too."""
    best = placing
    for _ in range(MOST_ROUNDS):
        walked = _walked(best)
        _redirect(walked)
        walked = _swaps(walked)
        _redirect(walked)
        if walked.score() >= best.score() - TIE:
            return best
        best = walked
    return best


def _walked(start: Placing) -> Placing:
    """Take load off the fullest node of every level, step by step; the best placement on the way."""
    placing = Placing(start.problem, start.where)
    best, best_score = placing.where.copy(), placing.score()
    for _ in range(2 * len(placing.where)):
        step = _best_step(placing)
        if step is None:
            break
        placing.move(*step)
        if (score := placing.score()) < best_score - TIE:
            best, best_score = placing.where.copy(), score
    return Placing(start.problem, best)


def _best_step(placing: Placing) -> tuple[int, int] | None:
    """The move off a level's fullest node that lowers the fuller of the two nodes most, its price taken off."""
    table, found = placing.table, []
    for level in range(table.level_count):
        used = placing.utilisation[level]
        full = int(np.argmax(used))
        for partition in np.flatnonzero((placing.where == full) & (table.level == level)).tolist():
            possible = np.flatnonzero(placing.targets(partition))
            cost = table.cost[partition]
            after = np.maximum(used[full] - cost / table.capacity[full], used[possible] + cost / table.capacity[possible])
            price = table.move_price[partition, possible] - table.move_price[partition, full]
            gain = np.where(after < used[full] - TIE, used[full] - after - price, -np.inf)
            if len(gain) and (best := int(np.argmax(gain))) >= 0 and gain[best] > -np.inf:
                found.append((float(gain[best]), -partition, int(possible[best])))
    if not found:
        return None
    _, partition, node = max(found)
    return -partition, node


def _redirect(placing: Placing) -> None:
    """Send moved partitions home, or elsewhere, where that lowers the score."""
    table = placing.table
    for partition in np.flatnonzero(placing.where != table.home).tolist():
        here, level, cost = int(placing.where[partition]), table.level[partition], table.cost[partition]
        possible = np.append(np.flatnonzero(placing.targets(partition)), here)
        used = placing.utilisation[level].copy()
        used[here] -= cost / table.capacity[here]
        peak = np.maximum(used.max(), used[possible] + cost / table.capacity[possible])
        score = peak + table.move_price[partition, possible]
        best = int(np.argmin(score))
        if score[best] < score[-1] - TIE:
            placing.move(partition, int(possible[best]))


def _swaps(start: Placing) -> Placing:
    """Swap partitions of a level's fullest node with lighter ones of the same level elsewhere; the best placement on the way."""
    placing = Placing(start.problem, start.where)
    best, best_score, vain = placing.where.copy(), placing.score(), 0
    for _ in range(len(placing.where)):
        pairs = sorted(pair for level in range(placing.table.level_count) for pair in _gaining_pairs(placing, level))
        is_swapped = any(_swapped(placing, heavy, light) for _, _, heavy, light in pairs[:MOST_SWAPS_TRIED])
        vain += 1
        if is_swapped and (score := placing.score()) < best_score - TIE:
            best, best_score, vain = placing.where.copy(), score, 0
        if not is_swapped or vain > MOST_SWAPS_IN_VAIN:
            break
    return Placing(start.problem, best)


def _gaining_pairs(placing: Placing, level: int) -> list[tuple[float, float, int, int]]:
    """The most promising pairs whose swap would lower the fuller of their nodes: how that changes the score, and that node."""
    table, used = placing.table, placing.utilisation[level]
    full = int(np.argmax(used))
    heavy = np.flatnonzero((table.level == level) & (placing.where == full))
    light = np.flatnonzero((table.level == level) & (placing.where != full))
    if not len(heavy) or not len(light):
        return []
    there = placing.where[light]
    shift = table.cost[heavy][:, None] - table.cost[light][None, :]
    peak = np.maximum(used[full] - shift / table.capacity[full], used[there] + shift / table.capacity[there])
    price = table.move_price[heavy][:, there] - table.move_price[heavy, full][:, None]
    price = price + (table.move_price[light, full] - table.move_price[light, there])[None, :]
    nearer = peak - used[full] + price
    change = np.maximum(peak, _highest_of_others(used, full)[there]) - used[full] + price
    change = np.where(change < -TIE, change, 0.0)
    found = np.argwhere(nearer < -TIE)
    order = np.lexsort((nearer[tuple(found.T)], change[tuple(found.T)]))[:MOST_SWAPS_TRIED]
    return [(float(change[i, j]), float(nearer[i, j]), int(heavy[i]), int(light[j])) for i, j in found[order].tolist()]


def _highest_of_others(used: NDArray[np.float64], full: int) -> NDArray[np.float64]:
    """For each node, the highest utilisation of those that are neither it nor the fullest."""
    others = used.copy()
    others[full] = -np.inf
    first = int(np.argmax(others))
    highest = np.full(len(used), others[first])
    others[first] = -np.inf
    highest[first] = others.max()
    return highest


def _swapped(placing: Placing, heavy: int, light: int) -> bool:
    """Let two partitions change places if no constraint forbids it."""
    first, second = int(placing.where[heavy]), int(placing.where[light])
    placing.move(heavy, second)
    placing.move(light, first)
    if placing.is_valid(heavy) and placing.is_valid(light):
        return True
    placing.move(heavy, first)
    placing.move(light, second)
    return False
