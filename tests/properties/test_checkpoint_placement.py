"""Laws of the checkpoint-placement planners, over all of ALGORITHMS and over generated problems."""

import random
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resurge.errors import InfeasibleError
from resurge.planning.checkpoint_placement import ALGORITHMS
from tests.support.checkpoint_problems import assert_keeps_constraints, random_problem

SEEDS = st.integers(0, 10**6)
BALANCES = st.sampled_from([None, 1.2, 1.5, 2.0, 3.0])
DOMAINS = st.sampled_from([None, 3])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, copies=st.integers(0, 2), balance=BALANCES, domains=DOMAINS)
def test_every_plan_keeps_the_constraints(algorithm: str, seed: int, copies: int, balance: float | None, domains: int | None):
    """Right number of copies, no shared failure domain, balanced load; or an error that names what cannot be kept."""
    problem = random_problem(random.Random(seed), copies=copies, balance=balance, domains=domains)
    try:
        plan = ALGORITHMS[algorithm](problem)
    except InfeasibleError as refusal:
        assert str(refusal).startswith("balance is ")
        return
    assert_keeps_constraints(problem, plan)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, balance=BALANCES)
def test_all_algorithms_agree_on_what_is_feasible(seed: int, balance: float | None):
    """A problem is feasible for all of them or for none: a heuristic that finds no room does not give up."""
    problem = random_problem(random.Random(seed), copies=1, balance=balance, domains=None)
    outcomes = set()
    for plan in ALGORITHMS.values():
        try:
            plan(problem)
            outcomes.add("feasible")
        except InfeasibleError:
            outcomes.add("infeasible")
    assert len(outcomes) == 1


def test_correlated_is_close_to_exact_on_average():
    """The mean excess over the optimum's score is far below the promised 5 %, and the optimum is never beaten."""
    excess = []
    for seed in range(40):
        chance = random.Random(seed)
        problem = random_problem(chance, copies=chance.choice([1, 1, 2]), balance=chance.choice([1.3, 1.5, 2.0]), domains=None)
        try:
            exact = ALGORITHMS["exact"](problem)
        except InfeasibleError:
            continue
        correlated = ALGORITHMS["correlated"](problem)
        assert exact.optimal and correlated.score >= exact.score - 1e-6
        excess.append((correlated.score - exact.score) / max(abs(exact.score), 1e-9))
    assert len(excess) > 20
    assert sum(excess) / len(excess) <= 0.03


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_exact_equals_trying_everything(seed: int):
    """On tiny problems, no placement that keeps the constraints has a lower score."""
    problem = random_problem(random.Random(seed), copies=1, balance=2.0, domains=None)
    groups = list(problem.loads)[:4]
    nodes = {
        name: replace(node, key_groups=[group for group in node.key_groups if group in groups])
        for name, node in problem.nodes.items()
    }
    small = replace(problem, nodes=nodes, loads={group: problem.loads[group] for group in groups}, balance=None)
    places = [list(combinations([name for name in nodes if group not in nodes[name].key_groups], 1)) for group in groups]
    best = min(small.score(dict(zip(groups, chosen, strict=True))) for chosen in product(*places))
    assert ALGORITHMS["exact"](small).score == pytest.approx(best)
    assert ALGORITHMS["correlated"](small).score == pytest.approx(best)


@pytest.mark.parametrize("algorithm", ["correlated", "exact"])
@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, balance=st.sampled_from([None, 2.0]), threshold=st.sampled_from([0.0, 0.5, 3.0, 1e9]))
def test_update_ends_within_the_threshold_of_a_new_placement(algorithm: str, seed: int, balance: float | None, threshold: float):
    """A feasible current placement is changed until it is at most `threshold` worse than a new one, and not further."""
    problem = random_problem(random.Random(seed), copies=1, balance=balance, domains=None)
    try:
        new, current = ALGORITHMS[algorithm](problem), ALGORITHMS["even"](problem)
    except InfeasibleError:
        return
    updated = ALGORITHMS[algorithm](replace(problem, current=current.placement, threshold=threshold))
    assert_keeps_constraints(problem, updated)
    assert updated.score <= new.score + threshold + 1e-6
    assert updated.score <= current.score + 1e-9
    if current.score <= new.score + threshold:
        assert updated.placement == current.placement
