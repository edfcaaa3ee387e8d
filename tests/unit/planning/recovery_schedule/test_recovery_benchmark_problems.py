"""The set-union knapsack benchmark of He et al. 2018, where a copy lies beside the project."""

import csv
from pathlib import Path

import pytest

from resurge.planning import problem_files
from resurge.planning.recovery_schedule import RecoveryProblem, anytime, greedy

PROBLEMS = Path(__file__).parents[5] / "shared" / "data" / "recovery"
pytestmark = pytest.mark.skipif(not PROBLEMS.is_dir(), reason="the benchmark problems are not beside the project")


@pytest.mark.parametrize("name", ["85_100_0.15_0.85", "185_200_0.15_0.85"])
def test_half_a_second_comes_close_to_the_best_known_value(name: str) -> None:
    """Far below the quality asked for in a second, so that a busy machine does not fail the test."""
    with (PROBLEMS / "best_known.csv").open(encoding="utf-8") as file:
        best_known = {row["instance"]: float(row["best_known_priority"]) for row in csv.DictReader(file)}
    problem = RecoveryProblem.from_json(problem_files.load(PROBLEMS / f"{name}.json.gz"))
    plan = anytime.plan(problem, deadline_ms=500)
    assert problem.fits(plan.cost)
    assert greedy.plan(problem).priority <= plan.priority <= best_known[name]
    assert plan.priority >= 0.9 * best_known[name]
