"""Laws that every recovery-schedule algorithm keeps, on random problems."""

import math
from collections.abc import Mapping
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resurge.planning.recovery_schedule import ALGORITHMS, Query, RecoveryPlan, RecoveryProblem, plan_by


@st.composite
def problems(draw: st.DrawFn, most_queries: int = 8, with_nodes: bool = False, whole: bool = True) -> RecoveryProblem:
    cost = st.integers(0, 20) if whole else st.decimals(0, 20, places=2).map(float)
    partitions = draw(st.lists(cost, max_size=10).map(lambda costs: {f"p{i}": c for i, c in enumerate(costs)}))
    needed = st.lists(st.sampled_from(sorted(partitions)), max_size=5, unique=True) if partitions else st.just([])
    priority = st.integers(0, 10) if whole else st.integers(0, 10) | st.decimals(0, 10, places=1).map(float)
    queries = draw(st.lists(st.builds(Query, priority, needed), max_size=most_queries))
    nodes: Mapping[str, float] | None = None
    if with_nodes:
        nodes = {f"n{i}": free for i, free in enumerate(draw(st.lists(st.integers(0, 25), max_size=4)))}
    capacity = draw(st.integers(0, 80))
    return RecoveryProblem(capacity, partitions, {f"q{i}": query for i, query in enumerate(queries)}, nodes)


def check(problem: RecoveryProblem, plan: RecoveryPlan) -> None:
    """Evaluate a plan from the problem alone: everything it says must be true and feasible."""
    recovered = set(plan.partitions)
    complete = [name for name, query in problem.queries.items() if recovered.issuperset(query.partitions)]
    assert len(recovered) == len(plan.partitions)
    assert list(plan.queries) == complete
    assert plan.priority == pytest.approx(sum(problem.queries[name].priority for name in complete))
    assert plan.cost == pytest.approx(sum(problem.partitions[name] for name in recovered))
    assert plan.cost <= problem.capacity + 1e-9
    if problem.nodes is None:
        assert plan.placement == {}
        return
    assert set(plan.placement) == recovered
    for node, free in problem.nodes.items():
        assert sum(problem.partitions[name] for name, where in plan.placement.items() if where == node) <= free + 1e-9


def best_by_brute_force(problem: RecoveryProblem) -> float:
    """Try every set of queries; with nodes, every placement of its partitions."""
    best = 0.0
    names = list(problem.queries)
    for size in range(len(names) + 1):
        for some in combinations(names, size):
            needed = {name for query in some for name in problem.queries[query].partitions}
            costs = sorted((problem.partitions[name] for name in needed), reverse=True)
            if sum(costs) <= problem.capacity + 1e-9 and can_be_placed(costs, problem.nodes):
                best = max(best, sum(problem.queries[name].priority for name in some))
    return best


def can_be_placed(costs: list[float], nodes: Mapping[str, float] | None) -> bool:
    """Whether some placement over-fills no node: depth first, largest first."""
    if nodes is None or not costs:
        return True
    return any(can_be_placed(costs[1:], {**nodes, name: room - costs[0]}) for name, room in nodes.items() if room >= costs[0])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(problem=problems() | problems(whole=False) | problems(with_nodes=True))
@settings(max_examples=40, deadline=None)
def test_every_plan_is_feasible_and_says_the_truth(algorithm: str, problem: RecoveryProblem) -> None:
    """Capacity and nodes are kept; priority, cost and queries follow from the partitions alone."""
    if algorithm == "dynamic-programming" and not problem.is_whole:
        return
    check(problem, plan_by(algorithm, problem, deadline_ms=100))


@given(problem=problems() | problems(whole=False))
@settings(max_examples=60, deadline=None)
def test_exact_equals_brute_force(problem: RecoveryProblem) -> None:
    """On small problems exact is optimal and says so; anytime is too."""
    plan = plan_by("exact", problem)
    assert plan.optimal is True
    assert plan.priority == pytest.approx(best_by_brute_force(problem))
    assert plan_by("anytime", problem).priority == pytest.approx(plan.priority)


@given(problem=problems(most_queries=6, with_nodes=True))
@settings(max_examples=60, deadline=None)
def test_exact_equals_brute_force_with_nodes(problem: RecoveryProblem) -> None:
    """The proof of exact includes the placement."""
    plan = plan_by("exact", problem)
    assert plan.optimal is True
    assert plan.priority == best_by_brute_force(problem)


@given(problem=problems(most_queries=12))
@settings(max_examples=60, deadline=None)
def test_dynamic_programming_equals_exact(problem: RecoveryProblem) -> None:
    """Two unrelated ways to the optimum agree."""
    plan = plan_by("dynamic-programming", problem)
    assert plan.optimal is True
    assert plan.priority == plan_by("exact", problem).priority


@given(problem=problems(most_queries=12))
@settings(max_examples=100, deadline=None)
def test_best_density_keeps_its_guarantee(problem: RecoveryProblem) -> None:
    """At least 1 - e^(-1/d) of the optimum, d being the largest number of queries that share a partition."""
    needed = [name for query in problem.queries.values() for name in query.partitions]
    most_sharing = max((needed.count(name) for name in problem.partitions), default=0)
    guaranteed = 1.0 if not most_sharing else 1 - math.exp(-1 / most_sharing)
    best = plan_by("dynamic-programming", problem).priority
    assert plan_by("best-density", problem).priority >= guaranteed * best - 1e-9


@given(problem=problems(most_queries=12))
@settings(max_examples=60, deadline=None)
def test_more_capacity_never_recovers_less(problem: RecoveryProblem) -> None:
    """The optimum grows with the capacity, up to everything."""
    more = RecoveryProblem(problem.capacity + 7, problem.partitions, problem.queries)
    everything = RecoveryProblem(sum(problem.partitions.values()), problem.partitions, problem.queries)
    least, middle, most = (plan_by("dynamic-programming", p).priority for p in (problem, more, everything))
    assert least <= middle <= most == sum(query.priority for query in problem.queries.values())
