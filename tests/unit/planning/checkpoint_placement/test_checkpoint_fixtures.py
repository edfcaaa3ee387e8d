"""Checkpoint-placement cases in plain text: a problem file and an expected file of the same name."""

from pathlib import Path

import pytest

from resurge.planning.checkpoint_placement import ALGORITHMS, CheckpointProblem, PlacementNode
from tests.support.checkpoint_problems import assert_keeps_constraints

FIXTURES = Path(__file__).parents[3] / "fixtures" / "checkpoint_placement"
CASES = sorted(path.name.removesuffix(".problem.txt") for path in FIXTURES.glob("*.problem.txt"))


def read_problem(case: str) -> CheckpointProblem:
    nodes, loads, options = {}, {}, {}
    for line in (FIXTURES / f"{case}.problem.txt").read_text().splitlines():
        match line.split():
            case ["node", name, *groups]:
                node, _, domain = name.partition("@")
                nodes[node] = PlacementNode(groups, domain or None)
            case ["load", group, *samples]:
                loads[group] = [float(sample) for sample in samples]
            case ["copies", count]:
                options["copies"] = int(count)
            case ["balance", factor]:
                options["balance"] = float(factor)
    return CheckpointProblem(nodes, loads, **options)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("case", CASES)
def test_plan_is_as_the_fixture_says(case: str, algorithm: str):
    """All keep the constraints; the algorithms that look at loads find the fixture's score and nodes (a|b: either)."""
    problem = read_problem(case)
    plan = ALGORITHMS[algorithm](problem)
    assert_keeps_constraints(problem, plan)
    if algorithm not in ("correlated", "exact"):
        return
    for line in (FIXTURES / f"{case}.expected.txt").read_text().splitlines():
        match line.split():
            case ["#", *_]:
                continue
            case ["score", score]:
                assert plan.score == pytest.approx(float(score))
            case [group, *wanted]:
                choices = [set(choice.split("|")) for choice in wanted]
                assert all(any(node in choice for choice in choices) for node in plan.placement[group])
