"""Checkpoint placement: copies of key groups' checkpoints on the nodes where they will be most useful.

One file per algorithm, each `plan(problem) -> CheckpointPlan`; after ELASTIC (Dynamic Resource Management in a Massively
Parallel Stream Processing Engine), section 6.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from resurge.planning.checkpoint_placement import baseline, correlated, even, exact
from resurge.planning.checkpoint_placement.plan import CheckpointPlan
from resurge.planning.checkpoint_placement.problem import CheckpointProblem, PlacementNode

DEFAULT_ALGORITHM = "correlated"

ALGORITHMS: Mapping[str, Callable[[CheckpointProblem], CheckpointPlan]] = MappingProxyType(
    {"baseline": baseline.plan, "even": even.plan, "correlated": correlated.plan, "exact": exact.plan}
)

__all__ = ["ALGORITHMS", "DEFAULT_ALGORITHM", "CheckpointPlan", "CheckpointProblem", "PlacementNode"]
