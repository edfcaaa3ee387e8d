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
_LEAST_POOL = 2
_MOST_IDLE_ROUNDS = 60
_NOISE = 0.5
_PRICE_SPREAD = 1.0
_LEAST_ADDED = 16
_ENTRIES_IN_ANY_CASE = 20_000_000
"""Matrix entries that are looked at even when time is up, some ten milliseconds: a small problem is always filled."""


def accept_all(chosen: Flags) -> Flags:
    """Every choice within the limit is good."""
    return chosen


@dataclass
class _Pool:
    """The best few distinct choices since the last new beginning."""

    members: list[tuple[float, Flags]] = field(default_factory=list)
    idle_rounds: int = 0

    def add(self, value: float, chosen: Flags) -> None:
        is_better = not self.members or value > self.members[0][0]
        self.idle_rounds = 0 if is_better else self.idle_rounds + 1
        if self.idle_rounds > _MOST_IDLE_ROUNDS:
            # The members have become much alike; what they can lead to has been seen.
            self.members.clear()
            self.idle_rounds = 0
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
    is_out_of_time: Callable[[], bool],
    rng: np.random.Generator,
    accept: Callable[[Flags], Flags] = accept_all,
) -> Flags:
    """Improve a greedy choice until time is up, or the whole problem is chosen.

    `accept` turns a choice into one that also satisfies what the weight alone does not say (by leaving items out,
    or exchanging them); the answer is the best accepted one.
    """
    arena = Arena.of(problem, is_out_of_time)
    start = fill(arena, np.zeros(problem.item_count, dtype=np.bool_), problem.limit)
    best = accept(start)
    best_value = arena.value_of(best)
    pool = _Pool()
    current, limit, was_refused = start, arena.limit, False
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
            was_refused = was_refused or not np.array_equal(accepted, current)
        if not is_out_of_time():
            limit = _tighter_limit(problem, best, rng) if was_refused else arena.limit
            current = _next_start(arena, pool, limit, rng)
    return best


def _tighter_limit(problem: SetUnionKnapsack, best: Flags, rng: np.random.Generator) -> float:
    # What was refused filled the limit too well; aim somewhere between that and what is known to be accepted.
    return float(rng.uniform(problem.weight_of(best), problem.limit))


def _next_start(arena: Arena, pool: _Pool, limit: float, rng: np.random.Generator) -> Flags:
    if len(pool.members) < _LEAST_POOL or rng.random() < _FRESH_SHARE:
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
        return fill(arena, nobody, limit, prices=prices)
    nothing = np.zeros(len(arena.weights), dtype=np.bool_)
    excluded = exclude_enough(arena, nothing, limit, prices, nothing)
    return fill(arena, arena.left_by(excluded), limit)


def _shaken_items(arena: Arena, chosen: Flags, share: float, limit: float, rng: np.random.Generator) -> Flags:
    """Drop a random share of the chosen items and fill up again."""
    dropped = chosen & (rng.random(len(chosen)) < share)
    banned = dropped if rng.random() < 0.5 else None
    return fill(arena, chosen & ~dropped, limit, banned=banned, noise=rng)


def _shaken_elements(arena: Arena, chosen: Flags, share: float, limit: float, rng: np.random.Generator) -> Flags:
    """Take back a random share of the elements left out, and leave out others."""
    excluded = arena.excluded_by(chosen)
    taken_back = excluded & (rng.random(len(excluded)) < share)
    banned = taken_back if rng.random() < 0.5 else np.zeros_like(taken_back)
    noisy = arena.weights * (1 + _NOISE * rng.random(len(excluded))).astype(arena.weights.dtype)
    excluded = exclude_enough(arena, excluded & ~taken_back, limit, noisy, banned)
    return fill(arena, arena.left_by(excluded), limit, noise=rng)


def fill(
    arena: Arena,
    start: Flags,
    limit: float,
    *,
    prices: Floats | None = None,
    banned: Flags | None = None,
    noise: np.random.Generator | None = None,
) -> Flags:
    """Add items by profit density under the given prices until none fits; a start above the limit is emptied.

    Out of time, a small problem is still filled, and of a large one a few are added: something is better than nothing.
    """
    shared_prices = (arena.weights if prices is None else prices) / np.maximum(arena.needs.sum(axis=0), 1)
    counts = arena.needs[start].sum(axis=0)
    chosen = start.copy()
    if arena.weights[counts > 0].sum(dtype=np.float64) > limit:
        chosen[:], counts = False, np.zeros_like(counts)
    refused = np.zeros_like(chosen) if banned is None else banned
    added, in_any_case = 0, max(_LEAST_ADDED, _ENTRIES_IN_ANY_CASE // max(1, arena.needs.size))
    while added < in_any_case or not arena.is_out_of_time():
        added += 1
        is_unpaid = counts == 0
        unpaid = arena.weights * is_unpaid
        room = limit - arena.total_weight + float(unpaid.sum(dtype=np.float64))
        density = arena.values / (arena.needs.dot(shared_prices * is_unpaid) + arena.nearly_nothing)
        if noise is not None:
            density *= 1 + _NOISE * noise.random(len(density))
        density[chosen | refused | (arena.needs.dot(unpaid) > room)] = -1
        item = int(density.argmax())
        if density[item] < 0:
            break
        chosen[item] = True
        counts = counts + arena.needs[item]
    return chosen
