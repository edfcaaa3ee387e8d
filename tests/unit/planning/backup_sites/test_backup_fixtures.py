"""Backup-sites cases in plain text: a problem file and an expected file of the same name."""

from pathlib import Path

import pytest

from resurge.errors import ProblemError
from resurge.planning.backup_sites import ALGORITHMS, BackupProblem

FIXTURES = Path(__file__).parents[3] / "fixtures" / "backup_sites"
CASES = sorted(path.name.removesuffix(".problem.txt") for path in FIXTURES.glob("*.problem.txt"))
OPTIMAL = ("auto", "line", "tree", "dag", "exhaustive", "exact")


def read_problem(case: str) -> BackupProblem:
    fields: dict[str, object] = {"bound": None}
    tasks, edges, costs, bounds = {}, [], {}, {}
    for line in (FIXTURES / f"{case}.problem.txt").read_text().splitlines():
        match line.split():
            case ["bound", value]:
                fields["bound"] = float(value)
            case ["sink_bound", name, value]:
                bounds[name] = float(value)
            case ["task", name, value]:
                tasks[name] = float(value)
            case ["cost", name, value]:
                costs[name] = float(value)
            case ["edge", before, after]:
                edges.append((before, after))
    return BackupProblem(tasks=tasks, edges=edges, bounds=bounds, costs=costs, **fields)


def read_expected(case: str) -> dict[str, list[str]]:
    lines = (FIXTURES / f"{case}.expected.txt").read_text().splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines if not line.startswith("#")}


@pytest.mark.parametrize("algorithm", OPTIMAL)
@pytest.mark.parametrize("case", CASES)
def test_plan_is_as_the_fixture_says(case: str, algorithm: str):
    """Every algorithm that suits the shape finds the cost in the fixture; the shape's own one the very backups."""
    problem, expected = read_problem(case), read_expected(case)
    try:
        plan = ALGORITHMS[algorithm](problem)
    except ProblemError as refusal:
        assert algorithm in ("line", "tree") and "use 'auto'" in str(refusal)
        return
    assert plan.cost == float(expected["cost"][0])
    if algorithm == "auto" and expected["backups"] != ["any"]:
        assert sorted(plan.backups) == sorted(expected["backups"])
        assert plan.worst == float(expected["worst"][0])
