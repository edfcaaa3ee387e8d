"""What a problem of key group moves refuses, and what its plans do in plain cases."""

import math

import pytest

from resurge.errors import InfeasibleError, ProblemError
from resurge.planning.key_group_moves import ALGORITHMS, MoveNode, MovePartition, MoveProblem

GOOD = {
    "nodes": {"n1": {"capacity": 1.0, "domain": "r1"}, "n2": {"capacity": 2, "drains": False}},
    "partitions": {
        "count/0": {"node": "n1", "cost": 0.5, "level": 1, "state_bytes": 10, "copies": ["n2"]},
        "count/1": {"node": "n2", "cost": 0.5},
    },
    "apart": [["count/0", "count/1"]],
    "most_moves": 3,
    "move_cost": 0.1,
    "byte_cost": 0,
}


def test_good_problem_is_accepted():
    """The base of the refusals below is itself well-formed."""
    assert MoveProblem.from_json(GOOD).partitions["count/0"].copies == ("n2",)


def _partition(**changes: object) -> dict[str, object]:
    return {"partitions": {"count/0": {**GOOD["partitions"]["count/0"], **changes}, "count/1": GOOD["partitions"]["count/1"]}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": ["n1"]}, "nodes must be an object"),
        ({"nodes": {"n1": {"domain": "r"}}}, "nodes['n1'] has no field 'capacity'"),
        ({"nodes": {"n1": {"capacity": 0}}}, "nodes['n1']['capacity'] must be more than 0"),
        ({"nodes": {"n1": {"capacity": math.nan}}}, "nodes['n1']['capacity'] must be a number, got NaN"),
        ({"nodes": {"n1": {"capacity": 1, "domain": 3}}}, "nodes['n1']['domain'] must be a name"),
        ({"nodes": {"n1": {"capacity": 1, "drains": 1}}}, "nodes['n1']['drains'] must be true or false"),
        ({"nodes": {"n1": {"capacity": 1, "drain": True}}}, "unknown field 'drain'; did you mean 'drains'?"),
        (_partition(node="n3"), "partitions['count/0']['node'] names an unknown node 'n3'"),
        (_partition(cost=-1), "partitions['count/0']['cost'] must be at least 0"),
        (_partition(cost="1"), "partitions['count/0']['cost'] must be a number"),
        (_partition(level=1.5), "partitions['count/0']['level'] must be an integer"),
        (_partition(state_bytes=-1), "partitions['count/0']['state_bytes'] must be an integer of at least 0"),
        (_partition(copies="n2"), "partitions['count/0']['copies'] must be a list"),
        (_partition(copies=["n9"]), "partitions['count/0']['copies'] names an unknown node 'n9'"),
        (_partition(copies=["n1"]), "partitions['count/0']['copies'] has 'n1' twice, or the partition runs there"),
        (_partition(copies=["n2", "n2"]), "has 'n2' twice"),
        ({"apart": [["count/0", "count/9"]]}, "apart[0] names an unknown partition 'count/9'"),
        ({"apart": [["count/0", "count/0"]]}, "apart[0] has 'count/0' twice"),
        ({"apart": "count/0"}, "apart must be a list"),
        ({"most_moves": -1}, "most_moves must be an integer of at least 0"),
        ({"most_moves": None}, "most_moves must be a number"),
        ({"move_cost": -1}, "move_cost must be at least 0"),
        ({"byte_cost": True}, "byte_cost must be a number"),
        ({"moves": []}, "unknown field 'moves'"),
    ],
)
def test_bad_input_is_refused_by_the_name_of_its_field(changes: dict[str, object], words: str):
    """Whatever is wrong, the message names the field."""
    with pytest.raises(ProblemError) as refusal:
        MoveProblem.from_json({**GOOD, **changes})
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("missing", ["nodes", "partitions"])
def test_missing_field_is_named(missing: str):
    """A file without nodes or partitions is refused."""
    with pytest.raises(ProblemError, match=f"no field '{missing}'"):
        MoveProblem.from_json({name: value for name, value in GOOD.items() if name != missing})


def moves_of(algorithm: str, problem: MoveProblem) -> dict[str, str]:
    return {move.partition: move.target for move in ALGORITHMS[algorithm](problem).moves}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_empty_problem_has_an_empty_plan(algorithm: str):
    """Nothing to move is not an error."""
    plan = ALGORITHMS[algorithm](MoveProblem.from_json({"nodes": {}, "partitions": {}}))
    assert plan.moves == () and plan.score == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_even_load_stays_where_it_is(algorithm: str):
    """A move must gain something."""
    nodes = {"n1": MoveNode(1.0), "n2": MoveNode(1.0)}
    partitions = {f"p/{index}": MovePartition(f"n{index % 2 + 1}", 0.2) for index in range(6)}
    assert moves_of(algorithm, MoveProblem(nodes, partitions)) == {}


@pytest.mark.parametrize("algorithm", ["balanced", "exact"])
def test_a_copy_decides_between_equal_nodes(algorithm: str):
    """Where a copy lies nothing is shipped, so the partition goes there."""
    nodes = {f"n{index}": MoveNode(1.0) for index in range(4)}
    partitions = {"a": MovePartition("n0", 0.4, 0, 10**9), "b": MovePartition("n0", 0.4, 0, 10**9, ["n2"])}
    assert moves_of(algorithm, MoveProblem(nodes, partitions)) == {"b": "n2"}


@pytest.mark.parametrize("algorithm", ["balanced", "exact"])
def test_levels_are_balanced_one_by_one(algorithm: str):
    """Nodes with equal totals still wait for each other if each has one level to itself; greedy does not see it."""
    nodes = {"n1": MoveNode(1.0), "n2": MoveNode(1.0)}
    partitions = {
        f"{name}/{index}": MovePartition(node, 0.2, level)
        for name, node, level in (("a", "n1", 0), ("b", "n2", 1))
        for index in range(2)
    }
    problem = MoveProblem(nodes, partitions)
    plan = ALGORITHMS[algorithm](problem)
    assert len(plan.moves) == 2 and plan.score == pytest.approx(0.4 + 0.01)
    assert moves_of("greedy", problem) == {}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_full_node_takes_nothing_and_may_stay_full(algorithm: str):
    """The overload of one node is no reason to fill another above its capacity."""
    nodes = {"n1": MoveNode(1.0), "n2": MoveNode(0.2)}
    partitions = {f"p/{index}": MovePartition("n1", 0.5) for index in range(4)}
    assert moves_of(algorithm, MoveProblem(nodes, partitions)) == {}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_node_that_drains_is_emptied_whatever_it_costs(algorithm: str):
    """Also when no further move is allowed."""
    nodes = {"n1": MoveNode(1.0, drains=True), "n2": MoveNode(1.0), "n3": MoveNode(1.0)}
    partitions = {f"p/{index}": MovePartition("n1", 0.3) for index in range(4)}
    problem = MoveProblem(nodes, partitions, most_moves=0, move_cost=10.0)
    assert sorted(moves_of(algorithm, problem).values()) == ["n2", "n2", "n3", "n3"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_drain_without_room_says_how_much_is_short(algorithm: str):
    """The message names the node, what leaves and what is free."""
    nodes = {"n1": MoveNode(1.0, drains=True), "n2": MoveNode(0.5)}
    with pytest.raises(InfeasibleError, match=r"'n1' cannot be drained: its partitions cost 0\.9, the others have 0\.5 free"):
        ALGORITHMS[algorithm](MoveProblem(nodes, {"p/0": MovePartition("n1", 0.9)}))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_tight_drain_is_found_where_largest_first_fails(algorithm: str):
    """0.5+0.5 and 0.4+0.3+0.3 fill two nodes exactly; any other way leaves something over."""
    nodes = {"n1": MoveNode(9.0, drains=True), "n2": MoveNode(1.0), "n3": MoveNode(1.0)}
    costs = [0.5, 0.5, 0.4, 0.3, 0.3]
    problem = MoveProblem(nodes, {f"p/{index}": MovePartition("n1", cost) for index, cost in enumerate(costs)})
    assert len(moves_of(algorithm, problem)) == 5


def test_two_nodes_that_are_as_full_are_relieved_by_two_swaps():
    """Neither swap alone lowers what the level waits for, and there is room for no single move."""
    costs = {"n1": (0.6, 0.5), "n2": (0.6, 0.5), "n3": (0.3, 0.3), "n4": (0.3, 0.3)}
    partitions = {f"{node}-{index}": MovePartition(node, cost) for node, here in costs.items() for index, cost in enumerate(here)}
    problem = MoveProblem({node: MoveNode(1.0) for node in costs}, partitions, most_moves=4)
    plan = ALGORITHMS["balanced"](problem)
    assert len(plan.moves) == 4
    assert plan.imbalance == pytest.approx(0.9 / (3.4 / 4))
