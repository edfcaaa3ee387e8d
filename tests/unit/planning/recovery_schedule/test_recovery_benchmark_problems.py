"""Set-union knapsack problems: generated ones with proven optima, and the benchmark of He et al. 2018 where a copy is there."""

import csv
from pathlib import Path

import pytest

from resurge.planning import problem_files
from resurge.planning.recovery_schedule import ALGORITHMS, RecoveryProblem, anytime, greedy
from tests.support.generated import knapsack_problem
from tests.support.real_data import real


@pytest.mark.parametrize("seed", range(3))
def test_half_a_second_comes_close_to_the_proven_optimum(seed: int) -> None:
    """40 queries that share partitions as the benchmark's do; the solver proves what is best."""
    problem = knapsack_problem(seed)
    best = ALGORITHMS["exact"](problem)
    assert best.optimal
    plan = anytime.plan(problem, deadline_ms=500)
    assert problem.fits(plan.cost)
    assert greedy.plan(problem).priority <= plan.priority <= best.priority
    assert plan.priority >= 0.97 * best.priority


def test_a_small_problem_is_filled_even_when_there_is_no_time() -> None:
    """On a machine that is busy because nodes have just failed, the plan is never worse than one greedy pass."""
    problem = knapsack_problem(2)
    assert anytime.plan(problem, deadline_ms=0).priority >= 0.9 * greedy.plan(problem).priority


@pytest.mark.parametrize("known", real("recovery/best_known.csv"), ids=lambda path: path.parent.name)
@pytest.mark.parametrize("name", ["85_100_0.15_0.85", "185_200_0.15_0.85"])
def test_half_a_second_comes_close_to_the_best_known_value(name: str, known: Path) -> None:
    """Far below the quality asked for in a second, so that a busy machine does not fail the test."""
    with known.open(encoding="utf-8") as file:
        best_known = {row["instance"]: float(row["best_known_priority"]) for row in csv.DictReader(file)}
    problem = RecoveryProblem.from_json(problem_files.load(known.parent / f"{name}.json.gz"))
    plan = anytime.plan(problem, deadline_ms=500)
    assert problem.fits(plan.cost)
    assert greedy.plan(problem).priority <= plan.priority <= best_known[name]
    assert plan.priority >= 0.9 * best_known[name]
