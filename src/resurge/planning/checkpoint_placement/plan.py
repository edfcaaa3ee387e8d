"""The answer to a checkpoint-placement problem: the nodes of every key group's copies, and the placement's score."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from resurge.planning.checkpoint_placement.problem import CheckpointProblem
from resurge.planning.solvers.balanced_assignment import Filling


@dataclass(frozen=True)
class CheckpointPlan:
    """`optimal` is True if proven, False if known to be worse or the proof ran out of time, None if nothing is proven."""

    algorithm: str
    placement: Mapping[str, tuple[str, ...]]
    score: float
    optimal: bool | None

    def to_json(self) -> dict[str, Any]:
        """The plan as the command line prints it, but for the elapsed time."""
        return {
            "algorithm": self.algorithm,
            "placement": {group: list(nodes) for group, nodes in self.placement.items()},
            "score": self.score,
            "optimal": self.optimal,
        }


def checkpoint_plan(problem: CheckpointProblem, algorithm: str, filling: Filling, optimal: bool | None) -> CheckpointPlan:
    """Spell out filled bins as a plan, in the order of the problem's key groups."""
    placement = {
        group: tuple(problem.node_names[node] for node in nodes)
        for group, nodes in zip(problem.group_names, filling.bins, strict=True)
    }
    return CheckpointPlan(algorithm, MappingProxyType(placement), filling.cost(), optimal)
