"""Set-union knapsack problems: generated ones with proven optima, and the benchmark of He et al. 2018 where a copy is there."""

import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from resurge.planning import problem_files
from resurge.planning.recovery_schedule import ALGORITHMS, RecoveryProblem, anytime, greedy
from tests.support.generated import knapsack_problem
from tests.support.real_data import real


def generated(seed: int) -> tuple[RecoveryProblem, float, float]:
    """40 queries that share partitions as the benchmark's do; the solver proves what is best."""
    best = ALGORITHMS["exact"](knapsack_problem(seed))
    assert best.optimal
    return knapsack_problem(seed), best.priority, 0.97


def published(known: Path, name: str) -> tuple[RecoveryProblem, float, float]:
    """A problem of the benchmark with the best value that anybody has found."""
    with known.open(encoding="utf-8") as file:
        best_known = {row["instance"]: float(row["best_known_priority"]) for row in csv.DictReader(file)}
    problem = RecoveryProblem.from_json(problem_files.load(known.parent / f"{name}.json.gz"))
    # Far below the quality asked for in a second, so that a busy machine does not fail the test.
    return problem, best_known[name], 0.9


PROBLEMS = [partial(generated, seed) for seed in range(3)]
PROBLEMS += [
    partial(published, known, name)
    for known in real("recovery/best_known.csv")
    for name in ("85_100_0.15_0.85", "185_200_0.15_0.85")
]


@pytest.mark.parametrize("make", PROBLEMS)
def test_half_a_second_comes_close_to_the_best_value(make: Callable[[], tuple[RecoveryProblem, float, float]]) -> None:
    """Between one greedy pass and the best there is, and near that."""
    problem, best, share = make()
    plan = anytime.plan(problem, deadline_ms=500)
    assert problem.fits(plan.cost)
    assert greedy.plan(problem).priority <= plan.priority <= best
    assert plan.priority >= share * best


def test_a_small_problem_is_filled_even_when_there_is_no_time() -> None:
    """On a machine that is busy because nodes have just failed, the plan is never worse than one greedy pass."""
    problem = knapsack_problem(2)
    assert anytime.plan(problem, deadline_ms=0).priority >= 0.9 * greedy.plan(problem).priority
