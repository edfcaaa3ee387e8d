"""Small cases with one right answer, as pairs of files: what the exact algorithms must find."""

import json
from pathlib import Path

import pytest

from resurge.planning import problem_files
from resurge.planning.recovery_schedule import ALGORITHMS, RecoveryProblem

FIXTURES = Path(__file__).parents[3] / "fixtures" / "recovery_schedule"
CASES = sorted(path.name.removesuffix(".expected.json") for path in FIXTURES.glob("*.expected.json"))


@pytest.mark.parametrize("algorithm", ["anytime", "best-density", "exact"])
@pytest.mark.parametrize("case", CASES)
def test_the_expected_plan_is_found(case: str, algorithm: str) -> None:
    """On problems this small, even the approximation finds the optimum."""
    problem = RecoveryProblem.from_json(problem_files.load(FIXTURES / f"{case}.json"))
    expected = json.loads((FIXTURES / f"{case}.expected.json").read_text(encoding="utf-8"))
    plan = ALGORITHMS[algorithm](problem).to_json()
    plan["placement"] = dict(sorted(plan["placement"].items())) if expected["placement"] else {}
    found = {name: plan[name] for name in expected if name != "placement"}
    assert found == {name: value for name, value in expected.items() if name != "placement"}
    assert plan["placement"].keys() == expected["placement"].keys()
