"""The answer to a backup-sites problem: who keeps backups, and how long every task then takes to recover."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from resurge.planning.backup_sites.problem import BackupProblem
from resurge.planning.solvers.latency_graph import RELATIVE_TOLERANCE


@dataclass(frozen=True)
class BackupPlan:
    """`optimal` is True if proven cheapest, False if the proof ran out of time, None if the algorithm proves nothing."""

    algorithm: str
    backups: tuple[str, ...]
    cost: float
    recovery_latency: Mapping[str, float]
    optimal: bool | None

    @property
    def worst(self) -> float:
        """The largest recovery latency of any task."""
        return max(self.recovery_latency.values(), default=0)

    def to_json(self) -> dict[str, Any]:
        """The plan as the command line prints it, but for the elapsed time."""
        return {
            "algorithm": self.algorithm,
            "backups": list(self.backups),
            "cost": self.cost,
            "recovery_latency": dict(self.recovery_latency),
            "worst": self.worst,
            "optimal": self.optimal,
        }


def backup_plan(problem: BackupProblem, algorithm: str, chosen: Collection[int], optimal: bool | None) -> BackupPlan:
    """Spell out the chosen vertices of the problem's graph as a plan, in the order of the problem's tasks."""
    backups = tuple(problem.names[vertex] for vertex in sorted(chosen))
    return BackupPlan(
        algorithm=algorithm,
        backups=backups,
        cost=sum(problem.cost_of(name) for name in backups),
        recovery_latency=MappingProxyType(recovery_latencies(problem, frozenset(backups))),
        optimal=optimal,
    )


def recovery_latencies(problem: BackupProblem, backups: Collection[str]) -> dict[str, float]:
    """Evaluate L(v) for every task, in the numbers of the problem: integers stay integers."""
    values: dict[str, float] = {}
    graph = problem.graph
    for vertex in graph.order:
        name = problem.names[vertex]
        before = [problem.names[other] for other in graph.upstream[vertex]]
        latency = problem.tasks[name] + max((values[other] for other in before if other not in backups), default=0)
        bound = problem.bound_of(name)
        # What exceeds the bound by a rounding error only is the bound.
        values[name] = bound if bound < latency <= bound * (1 + 2 * RELATIVE_TOLERANCE) else latency
    return {name: values[name] for name in problem.names}
