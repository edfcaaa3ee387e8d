"""What a recovery problem accepts, and how it refuses the rest."""

from typing import Any

import pytest

from resurge.errors import ProblemError
from resurge.planning.recovery_schedule import Query, RecoveryProblem

GOOD: dict[str, Any] = {
    "capacity": 10,
    "partitions": {"p1": 7, "p2": 3},
    "queries": {"q1": {"priority": 3, "partitions": ["p1", "p2"]}},
    "nodes": {"n1": 10},
}


def changed(**fields: Any) -> dict[str, Any]:
    return {**GOOD, **fields}


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], "the problem must be an object"),
        ({"capacity": 1, "partitions": {}}, "has no field 'queries'"),
        (changed(node={}), r"unknown field 'node'; did you mean 'nodes'\?"),
        (changed(capacity=-1), "capacity must be at least 0, got -1"),
        (changed(capacity="10"), "capacity must be a number, got '10'"),
        (changed(capacity=10**30), "capacity must be at most 1e[+]15"),
        (changed(partitions={"p1": -7, "p2": 3}), r"partitions\['p1'\] must be at least 0, got -7"),
        (changed(partitions={"p1": float("nan"), "p2": 3}), r"partitions\['p1'\] must be a number, got NaN"),
        (changed(partitions=["p1"]), "partitions must be an object"),
        (changed(queries={"q": 3}), r"queries\['q'\] must be an object"),
        (changed(queries={"q": {"priority": 1}}), r"queries\['q'\] has no field 'partitions'"),
        (changed(queries={"q": {"prio": 1, "partitions": []}}), r"unknown field 'prio'; did you mean 'priority'\?"),
        (changed(queries={"q": {"priority": -1, "partitions": []}}), r"queries\['q'\].priority must be at least 0"),
        (changed(queries={"q": {"priority": 1, "partitions": "p1"}}), r"queries\['q'\].partitions must be a list"),
        (
            changed(queries={"q": {"priority": 1, "partitions": ["part-1"]}}, partitions={"part-11": 1}),
            r"queries\['q'\].partitions names an unknown partition 'part-1'; did you mean 'part-11'",
        ),
        (changed(queries={"q": {"priority": 1, "partitions": [["p1"]]}}), r"queries\['q'\].partitions must be a name"),
        (changed(nodes=None), "nodes must be an object"),
        (changed(nodes={"n1": "many"}), r"nodes\['n1'\] must be a number"),
    ],
)
def test_a_malformed_problem_is_refused_by_field(document: object, complaint: str) -> None:
    """Each refusal names the field, in one line."""
    with pytest.raises(ProblemError, match=complaint) as refused:
        RecoveryProblem.from_json(document)
    assert "\n" not in str(refused.value)


def test_a_problem_built_in_python_is_checked_like_one_from_a_file() -> None:
    """The class validates, not the reader."""
    with pytest.raises(ProblemError, match="unknown partition 'b'"):
        RecoveryProblem(1, {"a": 1}, {"q": Query(1, ["b"])})
    with pytest.raises(ProblemError, match=r"partitions\['a'\]"):
        RecoveryProblem(1, {"a": float("inf")}, {})
    with pytest.raises(ProblemError, match="must be a Query"):
        RecoveryProblem(1, {"a": 1}, {"q": {"priority": 1, "partitions": []}})  # type: ignore[dict-item]


def test_a_problem_does_not_change_when_its_source_does() -> None:
    """The problem keeps its own copies, and they are read-only."""
    partitions: dict[str, float] = {"a": 1}
    problem = RecoveryProblem(1, partitions, {})
    partitions["a"] = 2
    assert problem.partitions["a"] == 1
    with pytest.raises(TypeError):
        problem.partitions["a"] = 3  # type: ignore[index]


def test_whole_numbers_get_no_tolerance_and_fractions_a_tiny_one() -> None:
    """0.1 + 0.2 fits 0.3; 11 does not fit 10, and 1,000,000,000,000,001 does not fit one less."""
    assert RecoveryProblem(0.3, {"a": 0.1, "b": 0.2}, {}).fits(0.1 + 0.2)
    assert not RecoveryProblem(999_999_999_999_999, {}, {}).fits(10**15)


def test_a_partition_listed_twice_counts_once() -> None:
    """A query needs a set of partitions."""
    assert RecoveryProblem(1, {"a": 1}, {"q": Query(1, ["a", "a"])}).queries["q"].partitions == ("a",)
