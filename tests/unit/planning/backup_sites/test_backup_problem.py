"""What a backup-sites problem refuses, and how it says so."""

import math

import pytest

from resurge.errors import InfeasibleError, ProblemError
from resurge.planning.backup_sites import ALGORITHMS, BackupProblem

GOOD = {"bound": 6, "tasks": {"a": 2, "b": 1, "c": 4}, "edges": [["a", "b"], ["b", "c"]]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"edges": [["a", "z"]]}, "edges[0] names an unknown task 'z'"),
        ({"edges": [["a", "b"], ["a", "b"]]}, "edges[1] repeats edges[0]"),
        ({"edges": [["a", "b"], ["b", "c"], ["c", "a"]]}, "edges form a cycle"),
        ({"edges": [["a", "a"]]}, "edges form a cycle: a -> a"),
        ({"edges": [["a"]]}, "edges[0] must be a pair"),
        ({"edges": {"a": "b"}}, "edges must be a list"),
        ({"edges": [["a", 3]]}, "edges[0] must be a name"),
        ({"tasks": {"a": -1}, "edges": []}, "tasks['a'] must be at least 0"),
        ({"tasks": {"a": math.nan}, "edges": []}, "tasks['a'] must be a number, got NaN"),
        ({"tasks": {"a": True}, "edges": []}, "tasks['a'] must be a number"),
        ({"tasks": {"a": "2"}, "edges": []}, "tasks['a'] must be a number"),
        ({"tasks": {"a": 10**400}, "edges": []}, "tasks['a'] must be at most"),
        ({"tasks": ["a"]}, "tasks must be an object"),
        ({"bound": math.inf}, "bound must be at most"),
        ({"bound": None}, "bound must be a number"),
        ({"bound": -1}, "bound must be at least 0"),
        ({"costs": {"z": 1}}, "costs names an unknown task 'z'"),
        ({"costs": {"a": -1}}, "costs['a'] must be at least 0"),
        ({"bounds": {"z": 1}}, "bounds names an unknown task 'z'"),
        ({"bounds": {"a": 9}}, "bounds['a'] is for a task that feeds 'b'; expected a sink"),
        ({"bounds": {"c": math.nan}}, "bounds['c'] must be a number"),
        ({"tsks": {}}, "unknown field 'tsks'; did you mean 'tasks'?"),
    ],
)
def test_bad_input_is_refused_by_the_name_of_its_field(changes: dict[str, object], words: str):
    """Whatever is wrong, the message names the field."""
    with pytest.raises(ProblemError) as refusal:
        BackupProblem.from_json({**GOOD, **changes})
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("missing", ["bound", "tasks", "edges"])
def test_missing_field_is_named(missing: str):
    """A file without one of its fields is refused, not guessed."""
    with pytest.raises(ProblemError, match=f"no field '{missing}'"):
        BackupProblem.from_json({name: value for name, value in GOOD.items() if name != missing})


def test_cycle_is_named_task_by_task():
    """The message walks the whole cycle."""
    with pytest.raises(ProblemError) as refusal:
        BackupProblem({"a": 1, "b": 1, "c": 1, "d": 1}, [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")], 3)
    assert "b -> c -> b" in str(refusal.value) or "c -> b -> c" in str(refusal.value)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_infeasible_bound_names_the_task_and_the_smallest_feasible_bound(algorithm: str):
    """No choice of backups helps a task that is slower than the bound by itself."""
    problem = BackupProblem({"a": 2, "b": 7.5, "c": 9}, [("a", "b"), ("b", "c")], 6)
    with pytest.raises(InfeasibleError, match=r"bound is 6, but task 'c' needs 9 .* smallest feasible bound is 9"):
        ALGORITHMS[algorithm](problem)
    assert ALGORITHMS["auto"](BackupProblem(problem.tasks, problem.edges, 9)).worst == 9


def test_infeasible_bound_of_a_sink_names_the_sink():
    """A task may be fast enough in general and too slow for one sink."""
    problem = BackupProblem({"a": 5, "b": 1, "c": 1}, [("a", "b"), ("a", "c")], 9, {"b": 3})
    with pytest.raises(
        InfeasibleError, match=r"bounds\['b'\] is 3, but task 'a' needs 5 .* smallest feasible bounds\['b'\] is 5"
    ):
        ALGORITHMS["auto"](problem)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_empty_problem_has_an_empty_plan(algorithm: str):
    """Nothing to recover is not an error."""
    plan = ALGORITHMS[algorithm](BackupProblem.from_json({"bound": 3, "tasks": {}, "edges": []}))
    assert plan.to_json() | {"algorithm": "any"} == {
        "algorithm": "any",
        "backups": [],
        "cost": 0,
        "recovery_latency": {},
        "worst": 0,
        "optimal": True,
    }


def test_whole_numbers_stay_whole():
    """A plan for integers has integers, as the problem file had."""
    plan = ALGORITHMS["auto"](BackupProblem.from_json(GOOD))
    assert plan.recovery_latency == {"a": 2, "b": 3, "c": 4}
    assert all(isinstance(value, int) for value in plan.recovery_latency.values())


def test_problem_does_not_change_with_what_it_was_made_of():
    """A problem is a value: changing the dictionary later changes nothing."""
    tasks = {"a": 1.0}
    problem = BackupProblem(tasks, [], 3)
    tasks["a"] = 99.0
    assert problem.tasks["a"] == 1.0


def test_exhaustive_refuses_what_would_never_end():
    """Trying everything is for small problems; the message says what to use instead."""
    tasks = {f"t{index}": 1 for index in range(60)}
    edges = [(f"t{index}", f"t{index + 1}") for index in range(59)]
    with pytest.raises(ProblemError, match="use 'exact'"):
        ALGORITHMS["exhaustive"](BackupProblem(tasks, edges, 2))


@pytest.mark.parametrize(
    ("edges", "name"),
    [
        ([("a", "b"), ("b", "c"), ("d", "c")], "line"),
        ([("a", "b"), ("d", "b"), ("b", "c")], "tree"),
        ([("a", "b"), ("a", "c"), ("a", "d")], "tree"),
        ([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")], "dag"),
    ],
)
def test_auto_recognises_the_shape(edges: list[tuple[str, str]], name: str):
    """The plan says which algorithm was used."""
    assert ALGORITHMS["auto"](BackupProblem(dict.fromkeys("abcd", 1), edges, 2)).algorithm == name
