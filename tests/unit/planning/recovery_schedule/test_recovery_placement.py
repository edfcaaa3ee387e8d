"""Partitions on nodes: never over-filled, repaired where fragmented."""

import random

from resurge.planning.recovery_schedule import ALGORITHMS, Query, RecoveryProblem
from resurge.planning.recovery_schedule.placement import place


def test_the_largest_partition_goes_to_the_emptiest_node() -> None:
    """Largest first, each where most is free."""
    problem = RecoveryProblem(10, {"a": 1, "b": 5, "c": 3}, {}, {"n1": 4, "n2": 6})
    assert place(problem, ["a", "b", "c"]) == {"b": "n2", "c": "n1", "a": "n1"}


def test_a_tight_fit_is_found_where_the_emptiest_node_is_the_wrong_one() -> None:
    """The fullest node that takes a partition is tried where the emptiest one leads nowhere."""
    problem = RecoveryProblem(20, {"a": 4, "b": 4, "c": 6}, {}, {"n1": 8, "n2": 6})
    assert place(problem, ["a", "b", "c"]) == {"c": "n2", "a": "n1", "b": "n1"}


def test_no_nodes_mean_that_only_queries_without_partitions_come_back() -> None:
    """An empty set of nodes is a cluster without room, unlike no word about nodes."""
    problem = RecoveryProblem(9, {"a": 0}, {"q": Query(1, ["a"]), "r": Query(2, [])}, {})
    for algorithm in ALGORITHMS.values():
        assert algorithm(problem).queries == ("r",)


def test_a_fragmented_cluster_gets_a_repaired_plan_worth_having() -> None:
    """Many nodes with little room each: no node is over-filled, and what can be placed is used well."""
    rng = random.Random(8)
    costs = {f"p{place}": rng.randint(20, 60) for place in range(60)}
    queries = {f"q{place}": Query(rng.randint(1, 10), rng.sample(list(costs), 2)) for place in range(60)}
    nodes = {f"n{place}": 70 for place in range(15)}
    problem = RecoveryProblem(sum(nodes.values()), costs, queries, nodes)
    plans = {name: algorithm(problem) for name, algorithm in ALGORITHMS.items() if name not in ("exact", "dynamic-programming")}
    for plan in plans.values():
        for node, free in nodes.items():
            assert sum(costs[name] for name, where in plan.placement.items() if where == node) <= free
    assert plans["anytime"].priority >= plans["greedy"].priority > 0
