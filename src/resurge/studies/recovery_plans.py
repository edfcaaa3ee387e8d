"""INCREMENTAL's figure 16: generated topologies, and what each algorithm recovers of them with more and more resources."""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from resurge.planning.recovery_schedule import anytime, best_density, dynamic_programming, greedy, operator_centric
from resurge.planning.recovery_schedule.plan import RecoveryPlan
from resurge.planning.recovery_schedule.problem import Query, RecoveryProblem

QUERIES = 18
PARTITIONS_PER_QUERY = 8
LARGEST_COST = 20
RESOURCE_PERCENTAGES = tuple(range(10, 101, 10))
_SEARCH_TICKS = 400


@dataclass(frozen=True)
class Setting:
    """One line of the figure: how partitions are shared, and what priorities queries have.

    A partition is shared by f queries, 1 <= f <= most_sharing, with probability proportional to f^(-skew).
    """

    panel: str
    name: str
    most_sharing: int
    skew: float
    is_priority_random: bool


SETTINGS = (
    Setting("a", "sharing up to 3", most_sharing=3, skew=0.0, is_priority_random=True),
    Setting("a", "sharing up to 6", most_sharing=6, skew=0.0, is_priority_random=True),
    Setting("b", "Zipf s = 0.2", most_sharing=6, skew=0.2, is_priority_random=True),
    Setting("b", "Zipf s = 0.5", most_sharing=6, skew=0.5, is_priority_random=True),
    Setting("c", "random priority", most_sharing=6, skew=0.2, is_priority_random=True),
    Setting("c", "priority grows with workload", most_sharing=6, skew=0.2, is_priority_random=False),
)


@dataclass(frozen=True)
class Result:
    """What one algorithm recovered of one topology."""

    setting: Setting
    topology: int
    resource_percentage: int
    algorithm: str
    recovered_priority: float
    failed_priority: float

    @property
    def ratio(self) -> float:
        """Recovered priority over failed priority."""
        return self.recovered_priority / self.failed_priority


def _anytime(problem: RecoveryProblem) -> RecoveryPlan:
    """Our default with a clock that counts how often it is asked, so that the study repeats exactly."""
    ticks = itertools.count()
    return anytime.plan(problem, deadline_ms=_SEARCH_TICKS * 1000, clock=lambda: float(next(ticks)))


ALGORITHMS: Mapping[str, Callable[[RecoveryProblem], RecoveryPlan]] = MappingProxyType(
    {
        "best-density": best_density.plan,
        "dynamic-programming": dynamic_programming.plan,
        "operator-centric": operator_centric.plan,
        "greedy": greedy.plan,
        "anytime": _anytime,
    }
)


def failed_topology(setting: Setting, rng: random.Random) -> RecoveryProblem:
    """Generate a completely failed topology: partitions upstream first, the most shared ones upstream."""
    shares = _shares(setting, rng)
    partitions = {f"p{place}": rng.randint(1, LARGEST_COST) for place in range(len(shares))}
    needs: list[list[str]] = [[] for _ in range(QUERIES)]
    for name, share in zip(partitions, shares, strict=True):
        for query in rng.sample(range(QUERIES), share):
            needs[query].append(name)
    workloads = [sum(partitions[name] for name in needed) for needed in needs]
    priorities = _priorities(setting, workloads, rng)
    queries = {f"q{place}": Query(priorities[place], needs[place]) for place in range(QUERIES)}
    return RecoveryProblem(sum(partitions.values()), partitions, queries)


def _shares(setting: Setting, rng: random.Random) -> list[int]:
    """How many queries share each partition, the most shared first; together they make queries of the usual size."""
    possible = range(1, setting.most_sharing + 1)
    likelihoods = [share**-setting.skew for share in possible]
    shares: list[int] = []
    while sum(shares) < QUERIES * PARTITIONS_PER_QUERY:
        shares.append(rng.choices(possible, likelihoods)[0])
    return sorted(shares, reverse=True)


def _priorities(setting: Setting, workloads: list[int], rng: random.Random) -> list[int]:
    if setting.is_priority_random:
        return [rng.randint(1, 10) for _ in workloads]
    least, most = min(workloads), max(workloads)
    return [1 + round(9 * (workload - least) / max(1, most - least)) for workload in workloads]


def sweep(seed: int, topologies: int) -> Iterator[list[Result]]:
    """For each setting and topology, the results of all algorithms at all resource levels."""
    for setting, topology in itertools.product(SETTINGS, range(topologies)):
        rng = random.Random(f"{seed} {setting.most_sharing} {setting.skew} {topology}")
        yield _results(setting, topology, failed_topology(setting, rng))


def _results(setting: Setting, topology: int, failed: RecoveryProblem) -> list[Result]:
    results: list[Result] = []
    for percentage in RESOURCE_PERCENTAGES:
        problem = RecoveryProblem(failed.capacity * percentage // 100, failed.partitions, failed.queries)
        for name, algorithm in ALGORITHMS.items():
            recovered = algorithm(problem).priority
            total = problem.priority_of(problem.query_names)
            results.append(Result(setting, topology, percentage, name, recovered, total))
    return results
