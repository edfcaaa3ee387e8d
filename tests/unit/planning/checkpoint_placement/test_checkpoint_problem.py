"""What a checkpoint-placement problem refuses, the paper's job, and what happens to a placement that exists."""

import math

import pytest

from resurge.errors import InfeasibleError, ProblemError
from resurge.planning.checkpoint_placement import ALGORITHMS, CheckpointProblem, PlacementNode
from tests.support.checkpoint_problems import two_operator_job, usable_copies

GOOD = {
    "nodes": {"n1": {"domain": "r1", "key_groups": ["g1"]}, "n2": {"domain": "r2", "key_groups": ["g2"]}},
    "loads": {"g1": [1.0, 2.0], "g2": [2.0, 1.0]},
    "copies": 1,
    "balance": 1.5,
    "current": {"g1": ["n2"]},
    "threshold": 0.1,
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loads": {"g1": [1.0, 2.0]}}, "nodes['n2']['key_groups'] names an unknown key group"),
        ({"loads": {**GOOD["loads"], "g3": [1.0, 2.0]}}, "loads['g3'] is for a key group that no node runs"),
        ({"loads": {"g1": [1.0], "g2": [2.0, 1.0]}}, "loads['g2'] has 2 samples, but loads['g1'] has 1"),
        ({"loads": {"g1": [], "g2": []}}, "loads['g1'] is empty"),
        ({"loads": {"g1": [1.0, -2.0], "g2": [2.0, 1.0]}}, "loads['g1'][1] must be at least 0"),
        ({"loads": {"g1": [1.0, math.nan], "g2": [2.0, 1.0]}}, "loads['g1'][1] must be a number, got NaN"),
        ({"loads": {"g1": "12", "g2": [2.0, 1.0]}}, "loads['g1'] must be a list"),
        ({"loads": {"g1": [1.0, True], "g2": [2.0, 1.0]}}, "loads['g1'][1] must be a number"),
        ({"nodes": {"n1": {"domain": "r1"}}}, "nodes['n1'] has no field 'key_groups'"),
        (
            {"nodes": {"n1": {"domian": "r1", "key_groups": []}}},
            "nodes['n1'] has an unknown field 'domian'; did you mean 'domain'?",
        ),
        ({"nodes": {"n1": {"domain": 3, "key_groups": ["g1"]}}}, "nodes['n1']['domain'] must be a name"),
        ({"nodes": {"n1": {"key_groups": ["g1"]}, "n2": {"key_groups": ["g1", "g2"]}}}, "has 'g1', which 'n1' has too"),
        ({"nodes": ["n1"]}, "nodes must be an object"),
        ({"copies": 1.5}, "copies must be an integer"),
        ({"copies": -1}, "copies must be an integer of at least 0"),
        ({"balance": 0.5}, "balance must be at least 1"),
        ({"balance": None}, "balance must be a number"),
        ({"threshold": -0.1}, "threshold must be at least 0"),
        ({"current": {"g9": ["n1"]}}, "current names an unknown key group 'g9'"),
        ({"current": {"g1": ["n9"]}}, "current['g1'] names an unknown node 'n9'"),
        ({"current": {"g1": ["n2", "n2"]}}, "current['g1'] has 'n2' twice"),
        ({"lodas": {}}, "unknown field 'lodas'; did you mean 'loads'?"),
    ],
)
def test_bad_input_is_refused_by_the_name_of_its_field(changes: dict[str, object], words: str):
    """Whatever is wrong, the message names the field."""
    with pytest.raises(ProblemError) as refusal:
        CheckpointProblem.from_json({**GOOD, **changes})
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("missing", ["nodes", "loads"])
def test_missing_field_is_named(missing: str):
    """A file without nodes or loads is refused."""
    with pytest.raises(ProblemError, match=f"no field '{missing}'"):
        CheckpointProblem.from_json({name: value for name, value in GOOD.items() if name != missing})


def test_correlated_makes_every_copy_of_the_papers_job_usable_and_even_makes_half():
    """Two operators with opposite loads: a copy helps only on the other operator's node."""
    job = two_operator_job()
    usable = {name: usable_copies(plan(job)) for name, plan in ALGORITHMS.items()}
    assert usable["correlated"] == usable["exact"] == 20
    assert usable["even"] == 10


def test_balance_of_exactly_what_the_papers_job_needs_is_enough():
    """All copies on two of three nodes is 1.5 times the average; rounding errors do not forbid it."""
    assert usable_copies(ALGORITHMS["correlated"](two_operator_job(balance=1.5))) == 20


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_too_many_copies_for_the_failure_domains_is_explained(algorithm: str):
    """The message says how many domains there are to choose from."""
    nodes = {"n1": PlacementNode(["g"], "rack1"), "n2": PlacementNode([], "rack1"), "n3": PlacementNode([], "rack2")}
    problem = CheckpointProblem(nodes, {"g": [1, 2]}, copies=2)
    with pytest.raises(InfeasibleError, match="copies is 2, but key group 'g' on node 'n1' has only 1 other failure domains"):
        ALGORITHMS[algorithm](problem)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_balance_that_one_key_group_breaks_is_explained(algorithm: str):
    """One key group heavier than any node may hold cannot be spread."""
    nodes = {"n1": PlacementNode(["big", "small"]), "n2": PlacementNode(), "n3": PlacementNode()}
    problem = CheckpointProblem(nodes, {"big": [9, 9], "small": [1, 1]}, balance=1.2)
    with pytest.raises(InfeasibleError, match=r"balance is 1\.2, but key group 'big' alone has load 9"):
        ALGORITHMS[algorithm](problem)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_balance_that_the_homes_break_is_explained(algorithm: str):
    """With two nodes, the copies of one go to the other, however heavy they are."""
    nodes = {"n1": PlacementNode(["a", "b", "c"]), "n2": PlacementNode(["d"])}
    problem = CheckpointProblem(nodes, {group: [1, 2] for group in "abcd"}, balance=1.2)
    with pytest.raises(InfeasibleError, match=r"no placement keeps every node within 1\.2 .* a balance of at least 1.5"):
        ALGORITHMS[algorithm](problem)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_empty_problem_has_an_empty_plan(algorithm: str):
    """Nothing to place is not an error."""
    plan = ALGORITHMS[algorithm](CheckpointProblem.from_json({"nodes": {}, "loads": {}}))
    assert plan.placement == {} and plan.score == 0


@pytest.mark.parametrize("algorithm", ["correlated", "exact"])
def test_only_the_move_worth_making_is_made(algorithm: str):
    """Of two copies in the wrong place, the one that matters moves and the one within the threshold stays."""
    nodes = {"idle": PlacementNode(), "n1": PlacementNode(["big"]), "n2": PlacementNode(["small", "other"])}
    loads = {"big": [10, 20], "small": [0.02, 0.01], "other": [30, 10]}
    current = {"big": ["idle"], "small": ["idle"], "other": ["n1"]}
    plan = ALGORITHMS[algorithm](CheckpointProblem(nodes, loads, current=current, threshold=0.1))
    assert plan.placement == {"big": ("n2",), "small": ("idle",), "other": ("n1",)}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_current_copy_beside_its_key_group_is_moved_however_high_the_threshold(algorithm: str):
    """A copy that would die with its key group is no copy."""
    nodes = {"n1": PlacementNode(["g"], "rack1"), "n2": PlacementNode([], "rack1"), "n3": PlacementNode([], "rack2")}
    problem = CheckpointProblem(nodes, {"g": [1, 2]}, current={"g": ["n2"]}, threshold=1e9)
    assert ALGORITHMS[algorithm](problem).placement == {"g": ("n3",)}


def test_even_gives_no_node_more_than_its_share_when_key_groups_are_even():
    """With as many key groups on every node, no node gets more copies than the average rounded up."""
    nodes = {f"n{node}": PlacementNode([f"g{node}-{index}" for index in range(7)]) for node in range(5)}
    loads = {group: [1, 2] for node in nodes.values() for group in node.key_groups}
    plan = ALGORITHMS["even"](CheckpointProblem(nodes, loads))
    held = [node for copies in plan.placement.values() for node in copies]
    assert max(held.count(node) for node in nodes) == 7
