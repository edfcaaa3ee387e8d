"""Tabu search over the chosen items of a set-union knapsack: add an item, or swap a chosen one for another.

Strong where the limit is small against the total weight, so that few items are chosen.
"""

import numpy as np

from resurge.planning.solvers.set_union_knapsack import Flags, Floats, Integers
from resurge.planning.solvers.set_union_knapsack_arena import Arena

_TENURE = 10
_WEIGHT_PRICE = 0.05
_CHECKED_EVERY = 4
_FORBIDDEN = -1e30
_LARGEST_NEIGHBOURHOOD = 20_000


def improve_items(arena: Arena, start: Flags, limit: float, patience: int, rng: np.random.Generator) -> Flags:
    """Search from a feasible start until `patience` moves in a row bring nothing new; return the best seen."""
    walk = _Walk(arena, start, limit, rng)
    idle = 0
    while idle < patience:
        walk.moves += 1
        if walk.moves % _CHECKED_EVERY == 0 and arena.is_out_of_time():
            break
        if not walk.step():
            break
        idle = 0 if walk.keep_if_best() else idle + 1
    return walk.best


class _Walk:
    """A walk through feasible choices; `counts` says how many chosen items need each element."""

    def __init__(self, arena: Arena, start: Flags, limit: float, rng: np.random.Generator) -> None:
        self.arena = arena
        self.limit = limit
        self.rng = rng
        self.chosen = start.copy()
        self.counts = arena.needs[start].sum(axis=0)
        self.value = self.best_value = arena.value_of(start)
        self.best = start.copy()
        self.tabu_until = np.zeros(len(start), dtype=np.int64)
        self.moves = 0

    def keep_if_best(self) -> bool:
        if self.value <= self.best_value + self.arena.least_gain:
            return False
        self.best_value = self.value
        self.best = self.chosen.copy()
        return True

    def step(self) -> bool:
        """Make the best allowed move; False if there is none."""
        arena = self.arena
        unpaid = arena.weights * (self.counts == 0)
        room = self.limit - arena.total_weight + float(unpaid.sum(dtype=np.float64))
        added_weight: Floats = arena.needs.dot(unpaid)
        is_free = self.tabu_until <= self.moves
        fitting = (added_weight <= room) & ~self.chosen
        # A tabu item is still welcome where it leads to something better than ever.
        fitting &= is_free | (arena.values > self.best_value - self.value)
        candidates = fitting.nonzero()[0]
        if candidates.size:
            self._add(candidates, added_weight)
            return True
        return self._swap(room, added_weight, is_free)

    def _add(self, candidates: Integers, added_weight: Floats) -> None:
        density = self.arena.values[candidates] / (added_weight[candidates] + self.arena.nearly_nothing)
        item = int(candidates[density.argmax()])
        self._flip(item, tenure=3 + int(self.rng.integers(5)))

    def _swap(self, room: float, added_weight: Floats, is_free: Flags) -> bool:
        arena = self.arena
        leaving = self.chosen.nonzero()[0]
        if not leaving.size:
            return False
        lonely = (self.counts == 1).nonzero()[0]
        columns = arena.needs.take(lonely, axis=1)
        saved = columns.take(leaving, axis=0) * arena.weights[lonely]
        saved_weight = saved.sum(axis=1)
        # Nothing that leaves makes more room than this, so heavier items need not be looked at.
        most_room = room + float(saved_weight.max())
        entering = ((added_weight <= most_room) & ~self.chosen).nonzero()[0]
        leaving_rows, entering = self._sample(leaving, entering)
        saved, saved_weight, leaving = saved[leaving_rows], saved_weight[leaving_rows], leaving[leaving_rows]
        if entering.size:
            weight = saved @ columns.take(entering, axis=0).T
            weight += added_weight[entering]
            weight -= saved_weight[:, None]
            gain = arena.values[entering] - arena.values[leaving][:, None]
            is_bad = ~is_free[leaving][:, None] | ~is_free[entering]
            is_bad &= gain <= self.best_value - self.value
            is_bad |= weight > room
            weight *= -_WEIGHT_PRICE * arena.price
            weight += gain
            weight[is_bad] = _FORBIDDEN
            row, column = divmod(int(weight.argmax()), entering.size)
            if weight[row, column] > _FORBIDDEN:
                self._flip(int(leaving[row]), tenure=_TENURE + int(self.rng.integers(_TENURE + 1)))
                self._flip(int(entering[column]), tenure=_TENURE // 2 + int(self.rng.integers(_TENURE // 2 + 1)))
                return True
        self._flip(int(self.rng.choice(leaving)), tenure=_TENURE)
        return True

    def _sample(self, leaving: Integers, entering: Integers) -> tuple[Integers, Integers]:
        """Look at a random part of a neighbourhood that is too large to look at whole."""
        rows = np.arange(leaving.size)
        if leaving.size * entering.size <= _LARGEST_NEIGHBOURHOOD:
            return rows, entering
        if leaving.size > 100:
            rows = self.rng.permutation(leaving.size)[:100]
        width = max(50, _LARGEST_NEIGHBOURHOOD // rows.size)
        return rows, self.rng.permutation(entering)[:width]

    def _flip(self, item: int, tenure: int) -> None:
        needs, value = self.arena.needs[item], float(self.arena.values[item])
        if self.chosen[item]:
            self.counts, self.value = self.counts - needs, self.value - value
        else:
            self.counts, self.value = self.counts + needs, self.value + value
        self.chosen[item] = not self.chosen[item]
        self.tabu_until[item] = self.moves + tenure
