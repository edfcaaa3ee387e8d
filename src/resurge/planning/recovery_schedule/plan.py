"""The answer to a recovery problem: which queries come back, which partitions are recovered for them, and where."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from resurge.planning.recovery_schedule.placement import place, place_on_emptiest, repaired
from resurge.planning.recovery_schedule.problem import RecoveryProblem
from resurge.planning.solvers.set_union_knapsack import Flags


@dataclass(frozen=True)
class RecoveryPlan:
    """`optimal` is True if proven best, False if the proof did not succeed, None if the algorithm proves nothing."""

    algorithm: str
    priority: float
    cost: float
    queries: tuple[str, ...]
    partitions: tuple[str, ...]
    placement: Mapping[str, str]
    optimal: bool | None

    def to_json(self) -> dict[str, Any]:
        """The plan as the command line prints it, but for the elapsed time."""
        return {
            "algorithm": self.algorithm,
            "priority": self.priority,
            "cost": self.cost,
            "queries": list(self.queries),
            "partitions": list(self.partitions),
            "placement": dict(self.placement),
            "optimal": self.optimal,
        }


def plan_of_queries(problem: RecoveryProblem, algorithm: str, chosen: Flags, *, optimal: bool | None = None) -> RecoveryPlan:
    """Spell out chosen queries as a plan: placed where there are nodes, repaired where they cannot be placed.

    A repaired plan is no longer proven to be optimal.
    """
    affordable = within_capacity(problem, chosen)
    if optimal and not np.array_equal(affordable, chosen):
        optimal = False
    chosen, partitions = affordable, _needed_by(problem, affordable)
    if problem.nodes is None:
        return _spelled_out(problem, algorithm, partitions, {}, optimal)
    placement = place(problem, partitions)
    if placement is None:
        chosen, placement = repaired(problem, chosen)
        partitions, optimal = _needed_by(problem, chosen), None if optimal is None else False
    return _spelled_out(problem, algorithm, partitions, placement, optimal)


def plan_of_placement(
    problem: RecoveryProblem, algorithm: str, placement: Mapping[str, str], *, optimal: bool | None = None
) -> RecoveryPlan:
    """Spell out a placement that is known to over-fill nothing."""
    partitions = [name for name in problem.partition_names if name in placement]
    return _spelled_out(problem, algorithm, partitions, placement, optimal)


def plan_of_partitions(problem: RecoveryProblem, algorithm: str, partitions: Iterable[str]) -> RecoveryPlan:
    """Spell out chosen partitions as a plan; those that find no node are left out."""
    wanted = set(partitions)
    placement: dict[str, str] = {}
    if problem.nodes is not None:
        placement, _ = place_on_emptiest(problem, [name for name in problem.partition_names if name in wanted])
        wanted = set(placement)
    return _spelled_out(problem, algorithm, [name for name in problem.partition_names if name in wanted], placement, None)


def within_capacity(problem: RecoveryProblem, chosen: Flags) -> Flags:
    """Drop queries, least priority first, that only a rounding error had let in."""
    chosen = chosen.copy()
    while chosen.any() and not problem.fits(problem.cost_of(_needed_by(problem, chosen))):
        candidates = np.flatnonzero(chosen)
        chosen[candidates[problem.knapsack.values[candidates].argmin()]] = False
    return chosen


def _needed_by(problem: RecoveryProblem, chosen: Flags) -> list[str]:
    return [problem.partition_names[place] for place in problem.knapsack.union_of(chosen).nonzero()[0]]


def _spelled_out(
    problem: RecoveryProblem,
    algorithm: str,
    partitions: list[str],
    placement: Mapping[str, str],
    optimal: bool | None,
) -> RecoveryPlan:
    """Every query whose partitions are all recovered is recovered, whether or not the algorithm asked for it."""
    recovered = set(partitions)
    union = np.array([name in recovered for name in problem.partition_names], dtype=np.bool_)
    completed = problem.knapsack.completed_by(union)
    queries = tuple(problem.query_names[place] for place in completed.nonzero()[0])
    return RecoveryPlan(
        algorithm=algorithm,
        priority=problem.priority_of(queries),
        cost=problem.cost_of(partitions),
        queries=queries,
        partitions=tuple(partitions),
        placement=MappingProxyType({name: placement[name] for name in partitions} if placement else {}),
        optimal=optimal,
    )
