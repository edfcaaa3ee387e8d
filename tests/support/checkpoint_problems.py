"""Problems for the checkpoint-placement tests, and checks that share no code with the planners."""

import random
from statistics import correlation, fmean

from resurge.planning.checkpoint_placement import CheckpointPlan, CheckpointProblem, PlacementNode


def random_problem(chance: random.Random, *, copies: int, balance: float | None, domains: int | None) -> CheckpointProblem:
    """A few nodes whose key groups follow a handful of daily rhythms, with noise."""
    node_count, samples = chance.randint(3, 6), 12
    rhythms = [[chance.uniform(0, 1) for _ in range(samples)] for _ in range(3)]
    groups = [f"g{index}" for index in range(chance.randint(1, 14))]
    loads = {}
    for group in groups:
        rhythm, scale = chance.choice(rhythms), chance.uniform(0.5, 3)
        loads[group] = [scale * (1 + value + chance.uniform(0, 0.3)) for value in rhythm]
    home = {group: chance.randrange(node_count) for group in groups}
    nodes = {
        f"n{index}": PlacementNode(
            [group for group in groups if home[group] == index], None if domains is None else f"rack{index % domains}"
        )
        for index in range(node_count)
    }
    return CheckpointProblem(nodes, loads, copies=copies, balance=balance)


def two_operator_job(*, balance: float | None = None) -> CheckpointProblem:
    """ELASTIC's job: ten key groups each of two operators; one's load goes from 100 to 0 while the other's grows."""
    falling = {f"first-{index}": [100 - step for step in range(101)] for index in range(10)}
    rising = {f"second-{index}": list(range(101)) for index in range(10)}
    nodes = {"n0": PlacementNode(), "n1": PlacementNode(list(falling)), "n2": PlacementNode(list(rising))}
    return CheckpointProblem(nodes, {**falling, **rising}, balance=balance)


def usable_copies(plan: CheckpointPlan) -> int:
    """How many copies of the two-operator job are on the node whose load falls when the key group's rises."""
    opposite = {"first": "n2", "second": "n1"}
    return sum(nodes == (opposite[group.split("-")[0]],) for group, nodes in plan.placement.items())


def assert_keeps_constraints(problem: CheckpointProblem, plan: CheckpointPlan) -> None:
    """Copies, failure domains, balance and score, from their definitions."""
    domain = {name: node.domain or f"only {name}" for name, node in problem.nodes.items()}
    home = {group: name for name, node in problem.nodes.items() for group in node.key_groups}
    held = dict.fromkeys(problem.nodes, 0.0)
    assert set(plan.placement) == set(problem.loads)
    for group, nodes in plan.placement.items():
        used = [domain[home[group]], *(domain[node] for node in nodes)]
        assert len(nodes) == problem.copies and len(set(used)) == len(used), (group, nodes)
        for node in nodes:
            held[node] += fmean(problem.loads[group])
    if problem.balance is not None:
        assert max(held.values()) <= problem.balance * fmean(held.values()) * (1 + 1e-6)
    score = sum(_value(problem, group, node) for group, nodes in plan.placement.items() for node in nodes)
    assert abs(score - plan.score) <= 1e-6 * max(1, abs(score))


def _value(problem: CheckpointProblem, group: str, node: str) -> float:
    own = problem.loads[group]
    total = [sum(samples) for samples in zip(*(problem.loads[other] for other in problem.nodes[node].key_groups), strict=True)]
    if len(set(own)) < 2 or len(set(total)) < 2:
        return 0.0
    return correlation(own, total) * fmean(own)
