"""Tabu search over the elements that a set-union knapsack leaves out.

Leaving out an element loses every item that needs it, and at least total weight - limit must be left out. Seen this
way the limit is a plain sum and only the lost value is a union: an easier landscape where the limit is near the total.
"""

import numpy as np

from resurge.planning.solvers.set_union_knapsack import Flags, Floats, Integers
from resurge.planning.solvers.set_union_knapsack_arena import Arena

_TENURE = 6
_WEIGHT_PRICE = 0.3
_CHECKED_EVERY = 4
_FORBIDDEN = 1e30
_WIDEST = 40
_TALLEST = 300


def improve_elements(arena: Arena, start: Flags, limit: float, patience: int, rng: np.random.Generator) -> Flags:
    """Search from the items of a feasible start until `patience` moves bring nothing; return the best items seen."""
    walk = _Walk(arena, arena.excluded_by(start), limit, rng)
    idle = 0
    while idle < patience:
        walk.moves += 1
        if walk.moves % _CHECKED_EVERY == 0 and arena.is_out_of_time():
            break
        if not walk.step():
            break
        idle = 0 if walk.keep_if_best() else idle + 1
    return walk.items_left()


def exclude_enough(arena: Arena, excluded: Flags, limit: float, prices: Floats, banned: Flags) -> Flags:
    """Leave out elements, least lost value per price first, until the rest is within the limit; banned ones last."""
    excluded = excluded.copy()
    hits = arena.needed_by[excluded].sum(axis=0)
    missing = arena.total_weight - limit - float(arena.weights[excluded].sum(dtype=np.float64))
    while missing > 0 and not excluded.all():
        lost: Floats = arena.needed_by.dot(arena.values * (hits == 0))
        score = (lost + arena.least_gain) / prices
        score[banned] += score.max()
        score[excluded] = np.inf
        element = int(score.argmin())
        excluded[element] = True
        hits = hits + arena.needed_by[element]
        missing -= float(arena.weights[element])
    return excluded


class _Walk:
    """A walk through feasible exclusions; `hits` says how many excluded elements each item needs."""

    def __init__(self, arena: Arena, excluded: Flags, limit: float, rng: np.random.Generator) -> None:
        no_ban = np.zeros_like(excluded)
        self.arena = arena
        self.required = arena.total_weight - limit
        self.rng = rng
        self.excluded = exclude_enough(arena, excluded, limit, arena.weights, no_ban)
        self.hits = arena.needed_by[self.excluded].sum(axis=0)
        self.lost = self.least_lost = self._lost_now()
        self.best = self.excluded.copy()
        self.tabu_until = np.zeros(len(excluded), dtype=np.int64)
        self.weight_prices = _WEIGHT_PRICE * arena.price * arena.weights
        self.moves = 0

    def _lost_now(self) -> float:
        return float(self.arena.values[self.hits > 0].sum(dtype=np.float64))

    def items_left(self) -> Flags:
        """The items that the best exclusion leaves whole."""
        return self.arena.left_by(self.best)

    def keep_if_best(self) -> bool:
        if self.lost >= self.least_lost - self.arena.least_gain:
            return False
        self.least_lost = self.lost
        self.best = self.excluded.copy()
        return True

    def step(self) -> bool:
        """Take back an element if the rest allows it, else make the best allowed swap; False if there is none."""
        arena = self.arena
        inside = self.excluded.nonzero()[0]
        if inside.size > _TALLEST:
            inside = self.rng.permutation(inside)[:_TALLEST]
        if not inside.size:
            return False
        slack = float(arena.weights[self.excluded].sum(dtype=np.float64)) - self.required
        saveable = (self.hits == 1).nonzero()[0]
        columns = arena.needed_by.take(saveable, axis=1)
        saved = columns.take(inside, axis=0) * arena.values[saveable]
        saved_value = saved.sum(axis=1)
        dispensable = (arena.weights[inside] <= slack).nonzero()[0]
        if dispensable.size:
            self._flip(int(inside[dispensable[saved_value[dispensable].argmax()]]), tenure=_TENURE)
            return True
        return self._swap(inside, slack, saved, columns)

    def _swap(self, inside: Integers, slack: float, saved: Floats, columns: Floats) -> bool:
        arena = self.arena
        outside = (~self.excluded).nonzero()[0]
        if not outside.size:
            return False
        lost_more: Floats = arena.needed_by.dot(arena.values * (self.hits == 0))
        if outside.size > _WIDEST:
            merit = lost_more[outside] - self.weight_prices[outside]
            outside = outside[merit.argpartition(_WIDEST)[:_WIDEST]]
        change = saved @ columns.take(outside, axis=0).T
        change += lost_more[outside]
        change -= saved.sum(axis=1)[:, None]
        is_bad = (self.tabu_until[inside] > self.moves)[:, None] | (self.tabu_until[outside] > self.moves)
        is_bad &= change >= self.least_lost - self.lost
        is_bad |= arena.weights[outside] - arena.weights[inside][:, None] < -slack
        change -= self.weight_prices[outside] - self.weight_prices[inside][:, None]
        change[is_bad] = _FORBIDDEN
        row, column = divmod(int(change.argmin()), outside.size)
        if change[row, column] >= _FORBIDDEN:
            self.tabu_until[:] = 0
            self._flip(int(self.rng.choice(outside)), tenure=_TENURE)
            return True
        self._flip(int(inside[row]), tenure=_TENURE + int(self.rng.integers(_TENURE + 1)))
        self._flip(int(outside[column]), tenure=_TENURE // 2 + int(self.rng.integers(_TENURE + 1)))
        return True

    def _flip(self, element: int, tenure: int) -> None:
        hits = self.arena.needed_by[element]
        self.hits = self.hits - hits if self.excluded[element] else self.hits + hits
        self.excluded[element] = not self.excluded[element]
        self.tabu_until[element] = self.moves + tenure
        self.lost = self._lost_now()
