"""The answer to a question of moves: what moves where, and what that is worth."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resurge.planning.key_group_moves.problem import MoveProblem


@dataclass(frozen=True)
class Move:
    """One partition's move; `is_assisted` says that a copy of it lies where it goes, so that nothing is shipped."""

    partition: str
    source: str
    target: str
    shipped_bytes: int
    is_assisted: bool

    def to_json(self) -> dict[str, Any]:
        """The move as the command line prints it."""
        return {
            "partition": self.partition,
            "from": self.source,
            "to": self.target,
            "shipped_bytes": self.shipped_bytes,
            "is_assisted": self.is_assisted,
        }


@dataclass(frozen=True)
class MovePlan:
    """Moves that take effect together. `optimal` is True if proven, False if the proof ran out of time, None for a heuristic.

    `imbalance` is the highest utilisation of a node over that of all nodes that stay, taken together.
    """

    algorithm: str
    moves: tuple[Move, ...]
    score: float
    score_before: float
    imbalance: float
    imbalance_before: float
    optimal: bool | None

    @property
    def shipped_bytes(self) -> int:
        """Bytes that all moves ship."""
        return sum(move.shipped_bytes for move in self.moves)

    def to_json(self) -> dict[str, Any]:
        """The plan as the command line prints it, but for the elapsed time."""
        return {
            "algorithm": self.algorithm,
            "moves": [move.to_json() for move in self.moves],
            "shipped_bytes": self.shipped_bytes,
            "score": self.score,
            "score_before": self.score_before,
            "imbalance": self.imbalance,
            "imbalance_before": self.imbalance_before,
            "optimal": self.optimal,
        }


def move_plan(problem: MoveProblem, algorithm: str, where: NDArray[np.int64], optimal: bool | None) -> MovePlan:
    """Spell out a placement as moves, in the order of the problem's partitions."""
    table, moves = problem.table, []
    for index in np.flatnonzero(where != table.home).tolist():
        name, target = table.partition_names[index], table.node_names[where[index]]
        partition = problem.partitions[name]
        is_assisted = target in partition.copies
        moves.append(Move(name, partition.node, target, 0 if is_assisted else partition.state_bytes, is_assisted))
    return MovePlan(
        algorithm,
        tuple(moves),
        table.score(where),
        table.score(table.home),
        table.imbalance(where),
        table.imbalance(table.home),
        optimal,
    )
