"""Recovery schedule: which failed queries come back first, with the capacity there is.

One file per algorithm, each `plan(problem) -> RecoveryPlan`; after INCREMENTAL (Incremental Recovery in Distributed
Stream Processing Systems) and PROGRESSIVE (Progressive Recovery of Correlated Failures).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from resurge.planning.recovery_schedule import (
    anytime,
    best_density,
    dynamic_programming,
    exact,
    greedy,
    operator_centric,
)
from resurge.planning.recovery_schedule.plan import RecoveryPlan
from resurge.planning.recovery_schedule.problem import Query, RecoveryProblem

DEFAULT_ALGORITHM = "anytime"

ALGORITHMS: Mapping[str, Callable[[RecoveryProblem], RecoveryPlan]] = MappingProxyType(
    {
        "anytime": anytime.plan,
        "best-density": best_density.plan,
        "greedy": greedy.plan,
        "dynamic-programming": dynamic_programming.plan,
        "operator-centric": operator_centric.plan,
        "exact": exact.plan,
    }
)

DEADLINES_MS: Mapping[str, float] = MappingProxyType(
    {"anytime": anytime.DEADLINE_MS, "exact": exact.DEADLINE_MS},
)
"""The algorithms that take `deadline_ms`, with its default."""


def plan_by(algorithm: str, problem: RecoveryProblem, deadline_ms: float | None = None) -> RecoveryPlan:
    """Plan with the named algorithm; a deadline is for those that work against the clock.

    >>> problem = RecoveryProblem(10, {"a": 7, "b": 3, "c": 5}, {"q": Query(3, ["a", "b"]), "r": Query(2, ["c"])})
    >>> plan_by("exact", problem).queries
    ('q',)
    """
    if deadline_ms is None or algorithm not in DEADLINES_MS:
        return ALGORITHMS[algorithm](problem)
    if algorithm == "exact":
        return exact.plan(problem, deadline_ms=deadline_ms)
    return anytime.plan(problem, deadline_ms=deadline_ms)


__all__ = ["ALGORITHMS", "DEADLINES_MS", "DEFAULT_ALGORITHM", "Query", "RecoveryPlan", "RecoveryProblem", "plan_by"]
