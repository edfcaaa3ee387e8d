"""Iterated local search for the set-union knapsack: better and better choices until time is up.

Each round starts from a fresh randomised construction or from a shaken good choice, and improves it in two
landscapes by turns: over the items that are chosen, and over the elements that are left out. What is a dead end in
one is often a slope in the other.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from resurge.planning.solvers.set_union_knapsack import Flags, Floats, SetUnionKnapsack
from resurge.planning.solvers.set_union_knapsack_arena import Arena
from resurge.planning.solvers.set_union_knapsack_element_tabu import exclude_enough, improve_elements
from resurge.planning.solvers.set_union_knapsack_item_tabu import improve_items

LARGEST_DENSE_PROBLEM = 4_000_000
"""Items times elements; beyond this the matrices would not fit the cache, nor in the end the memory."""

_ITEM_PATIENCE = 50
_ELEMENT_PATIENCE = 30
_FRESH_SHARE = 0.3
_POOL_SIZE = 6
_NOISE = 0.5
_PRICE_SPREAD = 1.0


def accept_all(chosen: Flags) -> Flags:
    """Every choice within the limit is good."""
    return chosen


@dataclass
class _Pool:
    """The best few distinct choices so far."""

    members: list[tuple[float, Flags]] = field(default_factory=list)

    def add(self, value: float, chosen: Flags) -> None:
        if any(np.array_equal(chosen, other) for _, other in self.members):
            return
        self.members.append((value, chosen))
        self.members.sort(key=lambda member: -member[0])
        del self.members[_POOL_SIZE:]

    def draw(self, rng: np.random.Generator) -> Flags:
        place = int(min(rng.integers(len(self.members), size=2)))
        return self.members[place][1]


def search(
    problem: SetUnionKnapsack,
    start: Flags,
    is_out_of_time: Callable[[], bool],
    rng: np.random.Generator,
    accept: Callable[[Flags], Flags] = accept_all,
) -> Flags:
    """Improve a feasible start until time is up, or the whole problem is chosen.

    `accept` turns a choice into one that also satisfies what the weight alone does not say (by leaving items out,
    or exchanging them); the answer is the best accepted one.
    """
    arena = Arena.of(problem, is_out_of_time)
    best = accept(start)
    best_value = arena.value_of(best)
    pool = _Pool()
    current, limit = start, arena.limit
    while best_value < arena.total_value - arena.least_gain and not is_out_of_time():
        current = improve_items(arena, current, limit, _ITEM_PATIENCE, rng)
        current = improve_elements(arena, current, limit, _ELEMENT_PATIENCE, rng)
        value = arena.value_of(current)
        pool.add(value, current)
        if value > best_value + arena.least_gain:
            accepted = accept(current)
            if arena.value_of(accepted) > best_value:
                best, best_value = accepted, arena.value_of(accepted)
                pool.add(best_value, best)
            if not np.array_equal(accepted, current):
                limit = _tighter_limit(problem, best, rng)
        if not is_out_of_time():
            current = _next_start(arena, pool, limit, rng)
    return best


def _tighter_limit(problem: SetUnionKnapsack, best: Flags, rng: np.random.Generator) -> float:
    # What was refused filled the limit too well; aim somewhere between that and what is known to be accepted.
    return float(rng.uniform(problem.weight_of(best), problem.limit))


def _next_start(arena: Arena, pool: _Pool, limit: float, rng: np.random.Generator) -> Flags:
    if rng.random() < _FRESH_SHARE:
        return _fresh_start(arena, limit, rng)
    chosen = pool.draw(rng)
    share = rng.uniform(0.1, 0.6)
    if rng.random() < 0.5:
        return _shaken_items(arena, chosen, share, limit, rng)
    return _shaken_elements(arena, chosen, share, limit, rng)


def _fresh_start(arena: Arena, limit: float, rng: np.random.Generator) -> Flags:
    """Construct from nothing, with prices of elements that are off by chance: each time other elements look cheap."""
    spread = rng.uniform(0, _PRICE_SPREAD)
    prices = arena.weights * np.exp(rng.normal(0, spread, len(arena.weights))).astype(arena.weights.dtype)
    nobody = np.zeros(len(arena.values), dtype=np.bool_)
    if rng.random() < 0.5:
        return _fill(arena, nobody, nobody, prices, limit)
    nothing = np.zeros(len(arena.weights), dtype=np.bool_)
    return _fill_around(arena, exclude_enough(arena, nothing, limit, prices, nothing), limit)


def _shaken_items(arena: Arena, chosen: Flags, share: float, limit: float, rng: np.random.Generator) -> Flags:
    """Drop a random share of the chosen items and fill up again."""
    dropped = chosen & (rng.random(len(chosen)) < share)
    banned = dropped if rng.random() < 0.5 else np.zeros_like(dropped)
    return _fill(arena, chosen & ~dropped, banned, _noisy(arena.weights, rng), limit)


def _shaken_elements(arena: Arena, chosen: Flags, share: float, limit: float, rng: np.random.Generator) -> Flags:
    """Take back a random share of the elements left out, and leave out others."""
    excluded = arena.excluded_by(chosen)
    taken_back = excluded & (rng.random(len(excluded)) < share)
    banned = taken_back if rng.random() < 0.5 else np.zeros_like(taken_back)
    return _fill_around(arena, exclude_enough(arena, excluded & ~taken_back, limit, _noisy(arena.weights, rng), banned), limit)


def _noisy(weights: Floats, rng: np.random.Generator) -> Floats:
    return weights * (1 + _NOISE * rng.random(len(weights))).astype(weights.dtype)


def _fill_around(arena: Arena, excluded: Flags, limit: float) -> Flags:
    left = arena.needed_by[excluded].sum(axis=0) == 0
    return _fill(arena, left, np.zeros_like(left), arena.weights, limit)


def _fill(arena: Arena, chosen: Flags, banned: Flags, prices: Floats, limit: float) -> Flags:
    """Add items by profit density under the given prices until none fits; a start above the limit is emptied."""
    chosen = chosen.copy()
    shared_prices = prices / np.maximum(arena.needs.sum(axis=0), 1)
    counts = arena.needs[chosen].sum(axis=0)
    if arena.weights[counts > 0].sum(dtype=np.float64) > limit:
        chosen[:], counts = False, np.zeros_like(counts)
    while not arena.is_out_of_time():
        is_unpaid = counts == 0
        unpaid = arena.weights * is_unpaid
        room = limit - arena.total_weight + float(unpaid.sum(dtype=np.float64))
        density = arena.values / (arena.needs.dot(shared_prices * is_unpaid) + 1e-9 * arena.total_weight)
        density[chosen | banned | (arena.needs.dot(unpaid) > room)] = -1
        item = int(density.argmax())
        if density[item] < 0:
            break
        chosen[item] = True
        counts = counts + arena.needs[item]
    return chosen
