"""resurge plan backups, checkpoints and moves, as a user runs them."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

BACKUPS = {"bound": 6, "tasks": {"a": 2, "b": 1, "c": 4}, "edges": [["a", "b"], ["b", "c"]]}
MOVES = {
    "nodes": {"n1": {"capacity": 1}, "n2": {"capacity": 1}},
    "partitions": {"count/0": {"node": "n1", "cost": 0.4}, "count/1": {"node": "n1", "cost": 0.3, "state_bytes": 9}},
}
CHECKPOINTS = {"nodes": {"n1": {"key_groups": ["g1"]}, "n2": {"key_groups": []}}, "loads": {"g1": [1, 2]}}


def resurge(*arguments: str) -> subprocess.CompletedProcess[str]:
    start = "from resurge.cli.main import run; run()"
    return subprocess.run([sys.executable, "-c", start, *arguments], capture_output=True, text=True, check=False)


def test_json_is_all_that_standard_output_has(tmp_path: Path):
    """The printed plan has exactly the documented fields, in their order; a gzipped file is read too."""
    file = tmp_path / "problem.json.gz"
    file.write_bytes(gzip.compress(json.dumps(BACKUPS).encode()))
    done = resurge("plan", "backups", "--problem", str(file), "--json")
    plan = json.loads(done.stdout)
    assert done.returncode == 0 and done.stderr == ""
    assert list(plan) == ["algorithm", "backups", "cost", "recovery_latency", "worst", "elapsed_ms", "optimal"]
    assert plan["backups"] == ["b"] and plan["worst"] == 4


def test_checkpoint_json_has_the_documented_fields(tmp_path: Path):
    """Exactly the fields that the design fixes, in their order."""
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(CHECKPOINTS))
    plan = json.loads(resurge("plan", "checkpoints", "--problem", str(file), "--json").stdout)
    assert list(plan) == ["algorithm", "placement", "score", "elapsed_ms", "optimal"]
    assert plan["placement"] == {"g1": ["n2"]}


def test_moves_json_has_the_documented_fields(tmp_path: Path):
    """Exactly these fields, in their order; people get a line per move."""
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(MOVES))
    plan = json.loads(resurge("plan", "moves", "--problem", str(file), "--json").stdout)
    assert list(plan) == [
        *("algorithm", "moves", "shipped_bytes", "score", "score_before"),
        *("imbalance", "imbalance_before", "elapsed_ms", "optimal"),
    ]
    moved = {"partition": "count/0", "from": "n1", "to": "n2", "shipped_bytes": 0, "is_assisted": False}
    assert plan["moves"] == [moved]
    told = resurge("plan", "moves", "--problem", str(file), "--algorithm", "exact").stdout.splitlines()
    assert told[0] == "count/0: n1 -> n2, 0 bytes" and told[-1].startswith("proven optimal; planned in ")


@pytest.mark.parametrize(
    ("question", "text", "words"),
    [
        ("backups", '{"bound": NaN, "tasks": {}, "edges": []}', "bound must be a number, got NaN"),
        ("backups", '{"bound": 3, "tasks": {"a": 4}, "edges": []}', "smallest feasible bound is 4"),
        ("backups", "bound: 3", "is not JSON"),
        ("backups", None, "no such problem file"),
        ("moves", '{"nodes": {}, "partitions": {"p": {"node": "n1", "cost": 1}}}', "['node'] names an unknown node 'n1'"),
        (
            "moves",
            '{"nodes": {"n": {"capacity": 1, "drains": true}}, "partitions": {"p": {"node": "n", "cost": 1}}}',
            "'n' cannot be drained",
        ),
        ("checkpoints", '{"nodes": {}, "loads": {"g": [1]}}', "loads['g'] is for a key group that no node runs"),
        ("checkpoints", '{"nodes": {"n": {"key_groups": ["g"]}}, "loads": {"g": [1]}}', "copies is 1, but key group 'g'"),
    ],
)
def test_refusal_is_one_line_and_exit_code_2(tmp_path: Path, question: str, text: str | None, words: str):
    """No traceback, nothing on standard output."""
    file = tmp_path / "problem.json"
    if text is not None:
        file.write_text(text)
    done = resurge("plan", question, "--problem", str(file), "--json")
    assert done.returncode == 2 and done.stdout == ""
    assert words in done.stderr and done.stderr.count("\n") == 1


def test_unknown_algorithm_is_refused_with_the_nearest_name(tmp_path: Path):
    """A typing error costs one line, not a search through the manual."""
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(BACKUPS))
    done = resurge("plan", "backups", "--problem", str(file), "--algorithm", "exakt")
    assert done.returncode == 2 and "did you mean 'exact'?" in done.stderr
