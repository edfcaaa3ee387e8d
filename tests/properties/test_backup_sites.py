"""Laws of the backup-sites planners, over all of ALGORITHMS and over generated topologies."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resurge.errors import ProblemError
from resurge.planning.backup_sites import ALGORITHMS, BackupPlan, BackupProblem
from tests.support import backup_topologies as topologies

KINDS = st.sampled_from(["uniform", "whole", "decimal", "real"])
TIGHTNESS = st.sampled_from([1.0, 1.5, 2.0, 3.0, 4.5])
SEEDS = st.integers(0, 10**6)


def assert_keeps_bounds(problem: BackupProblem, plan: BackupPlan) -> None:
    latency = topologies.recovery_latency(problem.tasks, problem.edges, plan.backups)
    for task, value in latency.items():
        assert value <= topologies.kept_bound(problem, task) + 1e-9, (task, plan)
        assert plan.recovery_latency[task] == pytest.approx(value)
    assert plan.cost == pytest.approx(sum(problem.cost_of(task) for task in plan.backups))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, kind=KINDS, tightness=TIGHTNESS, has_costs=st.booleans(), shape=st.sampled_from(["line", "dag"]))
def test_every_plan_keeps_every_bound(algorithm: str, seed: int, kind: str, tightness: float, has_costs: bool, shape: str):
    """L(v) <= R for every task, whatever the algorithm; a shape that it is not made for is refused."""
    chance = random.Random(seed)
    edges = topologies.line(9) if shape == "line" else topologies.random_dag(11, 0.25, chance)
    problem = topologies.problem_with(edges, chance, kind, tightness, has_costs=has_costs)
    try:
        plan = ALGORITHMS[algorithm](problem)
    except ProblemError:
        assert algorithm in ("line", "tree") and shape == "dag"
        return
    assert_keeps_bounds(problem, plan)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, kind=KINDS, tightness=TIGHTNESS, has_costs=st.booleans(), count=st.integers(1, 4))
def test_line_needs_no_more_than_exact(seed: int, kind: str, tightness: float, has_costs: bool, count: int):
    """On lines, `line`, `tree` and `auto` cost what `exact` proves to be the least."""
    chance = random.Random(seed)
    edges = topologies.lines(count, chance.randint(1, 8))
    problem = topologies.problem_with(edges, chance, kind, tightness, has_costs=has_costs)
    exact = ALGORITHMS["exact"](problem)
    for algorithm in ("line", "tree", "auto"):
        plan = ALGORITHMS[algorithm](problem)
        assert_keeps_bounds(problem, plan)
        assert plan.cost == pytest.approx(exact.cost) and plan.optimal and exact.optimal


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, kind=KINDS, tightness=TIGHTNESS, has_costs=st.booleans(), is_paper_tree=st.booleans())
def test_tree_needs_no_more_than_exact(seed: int, kind: str, tightness: float, has_costs: bool, is_paper_tree: bool):
    """On trees, those of the paper and those that branch both ways, `tree` costs what `exact` proves to be the least."""
    chance = random.Random(seed)
    grow = topologies.random_tree if is_paper_tree else topologies.random_forest_of_any_direction
    problem = topologies.problem_with(grow(18, chance), chance, kind, tightness, has_costs=has_costs)
    plan = ALGORITHMS["tree"](problem)
    assert_keeps_bounds(problem, plan)
    assert plan.cost == pytest.approx(ALGORITHMS["exact"](problem).cost)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, kind=KINDS, tightness=TIGHTNESS, has_costs=st.booleans(), density=st.sampled_from([0.15, 0.3, 0.5]))
def test_exact_equals_trying_everything(seed: int, kind: str, tightness: float, has_costs: bool, density: float):
    """`exact` and `exhaustive` agree on random acyclic topologies."""
    chance = random.Random(seed)
    problem = topologies.problem_with(topologies.random_dag(11, density, chance), chance, kind, tightness, has_costs=has_costs)
    assert ALGORITHMS["exact"](problem).cost == pytest.approx(ALGORITHMS["exhaustive"](problem).cost)


def test_dag_needs_at_most_a_tenth_more_than_exact_on_average():
    """Over random acyclic topologies of 12 to 30 tasks, the heuristic's mean excess is far below the promised 10 %."""
    excess = []
    for seed in range(60):
        chance = random.Random(seed)
        edges = topologies.random_dag(chance.randint(12, 30), chance.choice([0.08, 0.15, 0.25]), chance)
        kind = ["uniform", "whole", "real"][seed % 3]
        problem = topologies.problem_with(edges, chance, kind, chance.choice([1.5, 2.5, 4.0]), has_costs=seed % 4 == 0)
        exact = ALGORITHMS["exact"](problem)
        plan = ALGORITHMS["dag"](problem)
        assert_keeps_bounds(problem, plan)
        excess.append(plan.cost / exact.cost - 1 if exact.cost else float(plan.cost))
    assert sum(excess) / len(excess) <= 0.03


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, algorithm=st.sampled_from(["auto", "dag", "share-based", "exact", "exhaustive"]))
def test_every_task_keeps_the_smallest_bound_downstream(seed: int, algorithm: str):
    """With bounds per sink, with or without a general one, each task keeps the smallest of the sinks it feeds."""
    chance = random.Random(seed)
    edges = topologies.random_dag(10, 0.3, chance)
    names = [f"t{index}" for index in range(10)]
    tasks = {name: chance.randint(1, 4) for name in names}
    sinks = [name for name in names if all(name != before for before, _ in edges)]
    bounds = {sink: chance.randint(4, 12) for sink in sinks if chance.random() < 0.6}
    problem = BackupProblem(tasks, edges, None if bounds and chance.random() < 0.5 else 9, bounds)
    assert_keeps_bounds(problem, ALGORITHMS[algorithm](problem))


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, kind=KINDS, tightness=TIGHTNESS)
def test_no_single_backup_of_a_dag_plan_can_be_spared(seed: int, kind: str, tightness: float):
    """Leaving out any one backup of the heuristic's plan breaks some bound."""
    chance = random.Random(seed)
    edges = topologies.random_dag(16, 0.2, chance)
    problem = topologies.problem_with(edges, chance, kind, tightness, has_costs=False)
    plan = ALGORITHMS["dag"](problem)
    for spared in plan.backups:
        rest = [task for task in plan.backups if task != spared]
        latency = topologies.recovery_latency(problem.tasks, problem.edges, rest)
        assert any(value > problem.bound_of(task) for task, value in latency.items())
