"""A placement that is changed partition by partition, and never breaks a constraint by a change."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from resurge.errors import InfeasibleError
from resurge.planning.key_group_moves.problem import MoveProblem

Places = NDArray[np.int64]
"""For each partition, the number of its node."""


class Placing:
    """Where every partition is to be; partitions of nodes that drain must be moved by the caller."""

    def __init__(self, problem: MoveProblem, where: Places | None = None) -> None:
        self.problem = problem
        self.table = problem.table
        self.where = (self.table.home if where is None else where).copy()
        self.utilisation = self.table.utilisation(self.where)
        self.load = self.utilisation.sum(axis=0) * self.table.capacity
        self.price = self.table.price(self.where)
        self.guests = np.zeros(len(self.table.capacity), dtype=np.int64)
        np.add.at(self.guests, self.where[self.where != self.table.home], 1)

    def move(self, partition: int, node: int) -> None:
        """Change one place; the caller has asked `targets`."""
        table, old = self.table, int(self.where[partition])
        cost, level, home = table.cost[partition], table.level[partition], table.home[partition]
        for place, sign in ((old, -1), (node, 1)):
            self.utilisation[level, place] += sign * cost / table.capacity[place]
            self.load[place] += sign * cost
            self.guests[place] += sign * int(place != home)
        self.price += float(table.move_price[partition, node] - table.move_price[partition, old])
        self.where[partition] = node

    def targets(self, partition: int) -> NDArray[np.bool_]:
        """The nodes that a partition may go to now, other than its present one."""
        table, home, here = self.table, int(self.table.home[partition]), int(self.where[partition])
        has_room = self.load + table.cost[partition] <= table.limit
        # A node that takes nothing may stay as full as it is.
        has_room[home] |= self.guests[home] == 0
        possible: NDArray[np.bool_] = table.is_allowed[partition] & has_room & self._is_apart(partition)
        if here == home and not table.drains[home] and self.moves_left() == 0:
            possible[:] = False
        possible[here] = False
        return possible

    def is_valid(self, partition: int) -> bool:
        """Whether a partition may be where it is, with all others where they are."""
        table, node = self.table, int(self.where[partition])
        has_room = self.load[node] <= table.limit[node] or self.guests[node] == 0
        is_there = bool(table.is_allowed[partition, node] and self._is_apart(partition)[node])
        return bool(has_room) and is_there and self.moves_left() >= 0

    def moves_left(self) -> int:
        """How many more partitions may move that need not."""
        if self.problem.most_moves is None:
            return len(self.where)
        chosen = (self.where != self.table.home) & ~self.table.drains[self.table.home]
        return self.problem.most_moves - int(chosen.sum())

    def score(self) -> float:
        """The score of the placement."""
        return float(self.utilisation.max(axis=1, initial=0.0).sum()) + self.price

    def _is_apart(self, partition: int) -> NDArray[np.bool_]:
        table = self.table
        is_apart = np.ones(len(table.capacity), dtype=np.bool_)
        others = table.apart.get(partition, ())
        if not others:
            return is_apart
        for other in others:
            is_apart &= table.domain != table.domain[self.where[other]]
        home = int(table.home[partition])
        # Those that share a domain already may stay: only a move must not bring them together.
        is_apart[home] |= all(
            self.where[other] == table.home[other] or table.domain[self.where[other]] != table.domain[home] for other in others
        )
        return is_apart


Choose = Callable[[Placing, int, NDArray[np.int64]], int]
"""Chooses one of the nodes that a partition may go to."""


def evacuated(problem: MoveProblem, choose: Choose) -> Placing:
    """Empty the nodes that drain, the heaviest partitions first; a solver helps where that finds no room."""
    placing = Placing(problem)
    table = placing.table
    leaving = np.flatnonzero(table.drains[table.home])
    for partition in leaving[np.argsort(-table.cost[leaving], kind="stable")].tolist():
        possible = np.flatnonzero(placing.targets(partition))
        if not len(possible):
            return _solved(problem)
        placing.move(partition, choose(placing, partition, possible))
    return placing


def _solved(problem: MoveProblem) -> Placing:
    from resurge.planning.key_group_moves.solving import best_places

    found = best_places(problem, hint=None, time_limit_s=20.0)
    if found.where is None:
        raise InfeasibleError(no_room(problem, found.is_proven))
    return Placing(problem, found.where)


def no_room(problem: MoveProblem, is_proven: bool) -> str:
    """Say that nodes cannot be emptied, and by how much room is short."""
    table = problem.table
    names = ", ".join(repr(name) for name, node in problem.nodes.items() if node.drains)
    leaving = float(table.cost[table.drains[table.home]].sum())
    placing = Placing(problem)
    free = float(np.clip(table.capacity - placing.load, 0.0, None)[~table.drains].sum())
    verdict = "no placement keeps" if is_proven else "no placement was found that keeps"
    return (
        f"{names} cannot be drained: its partitions cost {leaving:g}, the others have {free:g} free, and {verdict} every node "
        "within its capacity and apart what must be apart; add a node, or drain fewer"
    )
