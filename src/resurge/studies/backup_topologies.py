"""The topologies of BACKUPS' experiments, built from what the paper says of them."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from resurge.planning.backup_sites import BackupProblem

SIGNAL_STEPS = (4, 4, 6, 8, 10, 9, 8, 5, 1)
"""Tasks in each of the nine steps of the traffic-signal topology, 55 in all; the paper does not say how many each has."""


@dataclass(frozen=True)
class StudyTopology:
    """A named topology with the recovery bounds to try, for tasks of time 1 and of times 1 to 10."""

    name: str
    edges: tuple[tuple[str, str], ...]
    uniform_bounds: tuple[int, ...]
    mixed_bounds: tuple[int, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks in the order in which edges name them."""
        return tuple(dict.fromkeys(name for edge in self.edges for name in edge))


@dataclass(frozen=True)
class StudyCase:
    """One problem of the study."""

    topology: str
    weights: str
    draw: int
    problem: BackupProblem


def topologies(chance: random.Random) -> list[StudyTopology]:
    """Lines, trees, traffic signal, and Twitter sentiment in its two sizes."""
    wide, narrow = tuple(range(2, 10)), tuple(range(10, 51, 5))
    short, short_mixed = tuple(range(2, 7)), tuple(range(10, 43, 4))
    return [
        StudyTopology("lines", tuple(_lines(3, 8)), wide, narrow),
        StudyTopology("tree", tuple(_tree(40, chance)), wide, narrow),
        StudyTopology("traffic-signal", tuple(_steps(SIGNAL_STEPS)), wide, narrow),
        StudyTopology("sentiment-560", tuple(twitter_sentiment(50, 20, 20)), short, short_mixed),
        StudyTopology("sentiment-1050", tuple(twitter_sentiment(30, 30, 30)), short, short_mixed),
    ]


def cases(seed: int, draws: int) -> Iterator[StudyCase]:
    """Every topology with every bound; times 1 to 10 are drawn several times."""
    chance = random.Random(seed)
    for topology in topologies(chance):
        uniform = dict.fromkeys(topology.tasks, 1)
        for bound in topology.uniform_bounds:
            yield StudyCase(topology.name, "uniform", 0, BackupProblem(uniform, topology.edges, bound))
        for draw in range(draws):
            mixed = {task: chance.randint(1, 10) for task in topology.tasks}
            for bound in topology.mixed_bounds:
                yield StudyCase(topology.name, "1 to 10", draw, BackupProblem(mixed, topology.edges, bound))


def twitter_sentiment(hot_topics: int, filters: int, sentiments: int) -> list[tuple[str, str]]:
    """Source, hot topics, merger, filters, sentiments, sink; the source feeds the filters too."""
    edges: list[tuple[str, str]] = []
    for topic in range(hot_topics):
        edges += [("source", f"hot-topics-{topic}"), (f"hot-topics-{topic}", "merger")]
    for number in range(filters):
        edges += [("merger", f"filter-{number}"), ("source", f"filter-{number}")]
        edges += [(f"filter-{number}", f"sentiment-{sentiment}") for sentiment in range(sentiments)]
    return edges + [(f"sentiment-{sentiment}", "sink") for sentiment in range(sentiments)]


def _lines(count: int, length: int) -> list[tuple[str, str]]:
    named = [[*(f"line-{number}-{place}" for place in range(length)), "sink"] for number in range(count)]
    return [edge for names in named for edge in pairwise(names)]


def _tree(size: int, chance: random.Random) -> list[tuple[str, str]]:
    # Feeding one of the few tasks before it makes branches of some length.
    return [(f"task-{task}", f"task-{chance.randrange(max(0, task - 6), task)}") for task in range(1, size)]


def _steps(sizes: Sequence[int]) -> list[tuple[str, str]]:
    """Steps of parallel tasks; a task feeds those of the next step that share a part of the key range with it."""
    edges = []
    for step, (size, following) in enumerate(pairwise(sizes)):
        for task in range(size):
            first, last = task * following // size, -(-(task + 1) * following // size)
            edges += [(f"step-{step}-{task}", f"step-{step + 1}-{other}") for other in range(first, last)]
    return edges
