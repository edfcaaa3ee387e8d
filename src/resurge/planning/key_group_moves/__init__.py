"""Key group moves: which partitions move to which nodes, so that load is even and nodes that go are empty.

One file per algorithm, each `plan(problem) -> MovePlan`; after ELASTIC (Dynamic Resource Management in a Massively
Parallel Stream Processing Engine), sections 4 and 7.2.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from resurge.planning.key_group_moves import balanced, exact, greedy
from resurge.planning.key_group_moves.plan import Move, MovePlan
from resurge.planning.key_group_moves.problem import MoveNode, MovePartition, MoveProblem

DEFAULT_ALGORITHM = "balanced"

ALGORITHMS: Mapping[str, Callable[[MoveProblem], MovePlan]] = MappingProxyType(
    {"greedy": greedy.plan, "balanced": balanced.plan, "exact": exact.plan}
)

__all__ = ["ALGORITHMS", "DEFAULT_ALGORITHM", "Move", "MoveNode", "MovePartition", "MovePlan", "MoveProblem"]
