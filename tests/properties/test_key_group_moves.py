"""Laws of the planners of key group moves, over all of ALGORITHMS and over generated problems."""

import random
import time
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resurge.errors import InfeasibleError
from resurge.planning.key_group_moves import ALGORITHMS, Move, MovePlan, MoveProblem
from tests.support.move_problems import (
    assert_keeps_constraints,
    large_problem,
    placement_after,
    random_problem,
    score_of,
    without_most_partitions,
)

SEEDS = st.integers(0, 10**6)
DRAINS = st.sampled_from([0, 0, 1, 2])
MOST_MOVES = st.sampled_from([None, None, 0, 2])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, drains=DRAINS, most_moves=MOST_MOVES)
def test_every_plan_keeps_the_constraints(algorithm: str, seed: int, drains: int, most_moves: int | None):
    """Never above a capacity, nothing left on a node that drains, domains kept; or an error that says what is short."""
    problem = random_problem(random.Random(seed), drains=drains, most_moves=most_moves)
    try:
        plan = ALGORITHMS[algorithm](problem)
    except InfeasibleError as refusal:
        assert drains and "cannot be drained" in str(refusal)
        return
    assert_keeps_constraints(problem, plan)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, drains=DRAINS)
def test_all_algorithms_agree_on_what_is_feasible(seed: int, drains: int):
    """A node can be drained by all of them or by none: a heuristic that finds no room does not give up."""
    problem = random_problem(random.Random(seed), drains=drains)
    outcomes = set()
    for plan in ALGORITHMS.values():
        try:
            plan(problem)
            outcomes.add("feasible")
        except InfeasibleError:
            outcomes.add("infeasible")
    assert len(outcomes) == 1


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_balanced_is_never_worse_than_greedy_or_staying(seed: int):
    """Where nothing must move, no move is made that does not pay."""
    problem = random_problem(random.Random(seed))
    plan = ALGORITHMS["balanced"](problem)
    assert plan.score <= min(ALGORITHMS["greedy"](problem).score, plan.score_before) + 1e-9


def test_balanced_is_close_to_exact_on_average():
    """The mean excess over the optimum is far below 5 %, and the optimum is never beaten."""
    excess = []
    for seed in range(40):
        problem = random_problem(random.Random(seed), drains=seed % 2)
        try:
            exact = ALGORITHMS["exact"](problem)
        except InfeasibleError:
            continue
        balanced = ALGORITHMS["balanced"](problem)
        assert exact.optimal and balanced.score >= exact.score - 1e-6
        excess.append((balanced.score - exact.score) / max(exact.score, 1e-9))
    assert len(excess) > 20
    assert sum(excess) / len(excess) <= 0.03


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, drains=st.sampled_from([0, 1]), most_moves=MOST_MOVES)
def test_exact_equals_trying_everything(seed: int, drains: int, most_moves: int | None):
    """On tiny problems, no placement that keeps the constraints has a lower score."""
    problem = without_most_partitions(random_problem(random.Random(seed), drains=drains, most_moves=most_moves), 4)
    best = min((score_of(problem, plan) for plan in _all_plans(problem)), default=None)
    try:
        found = ALGORITHMS["exact"](problem).score
    except InfeasibleError:
        assert best is None
        return
    assert best is not None and found == pytest.approx(best, abs=1e-7)


def _all_plans(problem: MoveProblem):
    for places in product(problem.nodes, repeat=len(problem.partitions)):
        moves = tuple(
            Move(
                name,
                partition.node,
                place,
                0 if place in partition.copies else int(partition.state_bytes),
                place in partition.copies,
            )
            for (name, partition), place in zip(problem.partitions.items(), places, strict=True)
            if place != partition.node
        )
        plan = MovePlan("all", moves, 0.0, 0.0, 1.0, 1.0, None)
        plan = MovePlan("all", moves, score_of(problem, plan), 0.0, 1.0, 1.0, None)
        try:
            assert_keeps_constraints(problem, plan)
        except AssertionError:
            continue
        yield plan


def test_a_hundred_nodes_are_balanced_in_seconds():
    """Half of the nodes are empty at first; afterwards none has much more than its share."""
    problem = large_problem(100, 1000, random.Random(1))
    started_s = time.process_time()
    plan = ALGORITHMS["balanced"](problem)
    assert time.process_time() - started_s < 30
    assert plan.imbalance_before > 1.9 and plan.imbalance < 1.2
    assert len(placement_after(problem, plan)) == 1000
