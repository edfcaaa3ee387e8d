"""Topologies for the backup-sites tests, and an evaluation of the latency recursion that shares no code with the planners."""

import random
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise

from resurge.planning.backup_sites import BackupProblem

Edges = list[tuple[str, str]]


def recovery_latency(tasks: Mapping[str, float], edges: Sequence[tuple[str, str]], backups: Sequence[str]) -> dict[str, float]:
    """L(v) = T(v) + max over upstream u of (0 if u is a backup else L(u)), straight from its definition."""

    @cache
    def latency(task: str) -> float:
        upstream = [before for before, after in edges if after == task]
        return tasks[task] + max((0.0 if before in backups else latency(before) for before in upstream), default=0.0)

    return {task: latency(task) for task in tasks}


def kept_bound(problem: BackupProblem, task: str) -> float:
    """The smallest bound of the sinks downstream of a task, from its definition."""
    after = [end for start, end in problem.edges if start == task]
    own = [problem.bounds[task]] if task in problem.bounds else []
    general = [] if problem.bound is None else [problem.bound]
    return min([*own, *general, *(kept_bound(problem, end) for end in after)], default=float("inf"))


def line(length: int) -> Edges:
    """One line of tasks."""
    return [(f"t{index}", f"t{index + 1}") for index in range(length - 1)]


def lines(count: int, length: int) -> Edges:
    """Lines that join at one sink."""
    edges = []
    for number in range(count):
        names = [f"line{number}-{index}" for index in range(length)] + ["sink"]
        edges += pairwise(names)
    return edges


def random_tree(size: int, chance: random.Random) -> Edges:
    """A tree in which every task but the sink t0 feeds one other."""
    return [(f"t{index}", f"t{chance.randrange(index)}") for index in range(1, size)]


def random_forest_of_any_direction(size: int, chance: random.Random) -> Edges:
    """A tree whose edges point either way."""
    edges = []
    for index in range(1, size):
        ends = (f"t{index}", f"t{chance.randrange(index)}")
        edges.append(ends if chance.random() < 0.5 else ends[::-1])
    return edges


def random_dag(size: int, density: float, chance: random.Random) -> Edges:
    """Edges from lower to higher numbers, each with the given probability."""
    pairs = [(before, after) for after in range(size) for before in range(after)]
    return [(f"t{before}", f"t{after}") for before, after in pairs if chance.random() < density]


def problem_with(edges: Edges, chance: random.Random, kind: str, tightness: float, *, has_costs: bool) -> BackupProblem:
    """Give tasks random times of a kind, and a bound between the slowest task and twice that and more."""
    names = list(dict.fromkeys(name for edge in edges for name in edge)) or ["t0"]
    choose = {
        "uniform": lambda: 1,
        "whole": lambda: chance.randint(0, 10),
        "decimal": lambda: chance.choice([0.1, 0.2, 0.3, 0.7]),
        "real": lambda: chance.uniform(0.1, 5.0),
    }[kind]
    tasks = {name: choose() for name in names}
    slowest = max(tasks.values())
    costs = {name: chance.choice([0.5, 1, 2, 5]) for name in names} if has_costs else {}
    return BackupProblem(tasks=tasks, edges=edges, bound=round(slowest * tightness, 6) + 1e-6, costs=costs)
