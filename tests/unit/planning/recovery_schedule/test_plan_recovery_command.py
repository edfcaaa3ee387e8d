"""resurge plan recovery, as a process: JSON only on standard output, bad input as one line and exit code 2."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROBLEM = {
    "capacity": 10,
    "partitions": {"a": 7, "b": 3, "c": 5},
    "queries": {"q": {"priority": 3, "partitions": ["a", "b"]}, "r": {"priority": 2, "partitions": ["c"]}},
    "nodes": {"n1": 7, "n2": 5},
}


def resurge(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from resurge.cli.main import run; run()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def problem_file(tmp_path: Path) -> Path:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(PROBLEM), encoding="utf-8")
    return path


def test_json_is_all_that_is_printed_and_has_the_agreed_fields(problem_file: Path) -> None:
    """The fields and their order are stable."""
    done = resurge("plan", "recovery", "--problem", str(problem_file), "--json")
    plan = json.loads(done.stdout)
    assert done.returncode == 0
    assert list(plan) == [
        "algorithm", "priority", "cost", "queries", "partitions", "placement", "elapsed_ms", "optimal",
    ]  # fmt: skip
    assert (plan["algorithm"], plan["priority"], plan["cost"], plan["queries"]) == ("anytime", 3, 10, ["q"])


def test_people_get_a_short_answer(problem_file: Path) -> None:
    """Without --json the plan is told in a few lines."""
    done = resurge("plan", "recovery", "--problem", str(problem_file), "--algorithm", "greedy")
    assert done.stdout.startswith("greedy: priority 2 of 5")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--problem", "{absent}"], "no such problem file"),
        ([], "Missing option '--problem'"),
        (["--problem", "{file}", "--algorithm", "exakt"], "did you mean 'exact'?"),
        (["--problem", "{file}", "--deadline-ms", "soon"], "--deadline-ms"),
        (["--problem", "{file}", "--deadline-ms", "-1"], "--deadline-ms must be between"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(problem_file: Path, arguments: list[str], complaint: str) -> None:
    """No traceback, nothing on standard output."""
    spelled = [part.format(absent=problem_file.with_name("absent"), file=problem_file) for part in arguments]
    done = resurge("plan", "recovery", *spelled)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
