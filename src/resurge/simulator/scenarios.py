"""Named scenarios: a workload, the nodes it begins on, and what goes wrong."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from resurge.errors import SimulationError
from resurge.simulator.faults import EVERYTHING, Arrive, Choice, Fault, Kill, Moment, RestartDriver, Schedule, random_schedule
from resurge.simulator.workload import Workload, hashtag_workload, random_workload, scaled
from resurge.simulator.world import Timing

USUAL_LOAD = 0.8


@dataclass(frozen=True)
class Scenario:
    """Everything about a simulated run but its seed and its strategy.

    `labels` name the first nodes for traces. After the last fault, machines are added until nodes suffice (`heals`), and
    the run must then become whole within `settle_s`; without healing it may end as it is.
    """

    name: str
    workload: Workload
    nodes: int
    capacity: float
    schedule: Schedule
    domains: int = 2
    labels: tuple[str, ...] = ()
    timing: Timing = field(default_factory=Timing)
    checkpoint_interval: int = 5
    correlated_from: int = 2
    heals: bool = True
    settle_s: float = 800.0
    overfills_at_last: bool = False
    is_concurrent: bool = True

    def nodes_that_suffice(self) -> int:
        """So many nodes that every partition finds room, however the others lie."""
        largest = max(self.workload.costs.values())
        if self.capacity <= largest:
            raise SimulationError(f"a node may spend {self.capacity}, but a partition costs {largest}; expected room for it")
        return max(self.nodes, 1 + int(self.workload.total_cost / (self.capacity - largest)))


def random_scenario(rng: random.Random) -> Scenario:
    """A small world of any shape, and any disasters."""
    workload = random_workload(rng)
    nodes = rng.randint(1, 6)
    largest = max(workload.costs.values())
    capacity = max(1.5 * largest, workload.total_cost / nodes / rng.uniform(0.5, 0.95))
    timing = Timing(
        detection_s=rng.choice((0.0, 0.3, 1.0)),
        warm_up_s=rng.choice((0.0, 0.5, 2.0)),
        # From idle to pressed: how much of its interval a fully loaded node works.
        headroom=rng.choice((0.2, 0.5, 0.8)),
    )
    return Scenario(
        "random",
        workload,
        nodes,
        capacity,
        random_schedule(rng, nodes, until_s=12.0),
        domains=rng.randint(1, 3),
        timing=timing,
        checkpoint_interval=rng.choice((2, 4, 7, 30)),
        correlated_from=rng.choice((1, 2, 2, 3)),
        is_concurrent=rng.random() < 0.7,
    )


def hashtag_scenario(name: str, faults: list[Fault], nodes: int = 10, partitions: int = 30) -> Scenario:
    """The 15 queries on nodes that are usually four fifths full."""
    workload = scaled(hashtag_workload(partitions), nodes * USUAL_LOAD)
    return Scenario(name, workload, nodes, 1.0, Schedule.of(faults))


def _arrivals(count: int, first_s: float, gap_s: float) -> list[Fault]:
    return [Arrive(first_s + gap_s * index) for index in range(count)]


SCENARIOS: Mapping[str, Callable[[random.Random], Scenario]] = MappingProxyType(
    {
        "random": random_scenario,
        "one-node": lambda _: hashtag_scenario("one-node", [Kill(12.0), Arrive(20.0)]),
        "eight-of-ten": lambda _: hashtag_scenario("eight-of-ten", [Kill(12.0, 8), *_arrivals(8, 16.0, 2.0)]),
        "one-after-another": lambda _: hashtag_scenario(
            "one-after-another", [*(Kill(12.0 + 2 * turn) for turn in range(8)), *_arrivals(8, 16.0, 2.0)]
        ),
        "rack": lambda _: hashtag_scenario("rack", [Kill(12.0, EVERYTHING, Choice.ONE_DOMAIN), *_arrivals(5, 16.0, 1.0)]),
        "everything": lambda _: hashtag_scenario("everything", [Kill(12.0, EVERYTHING), *_arrivals(10, 16.0, 1.0)]),
        "during-recovery": lambda _: hashtag_scenario(
            "during-recovery",
            [Kill(12.0, 4), *(Kill(13.0, 1, Choice.ANY, Moment.IN_RECOVERY) for _ in range(3)), *_arrivals(7, 16.0, 1.0)],
        ),
        "flapping": lambda _: hashtag_scenario(
            "flapping",
            [Kill(12.0, 3), *(fault for t in range(5) for fault in (Arrive(14.0 + t), Kill(14.8 + t, 1, Choice.NEWEST)))],
        ),
        "driver-restart": lambda _: hashtag_scenario(
            "driver-restart", [Kill(12.0, 5), RestartDriver(14.0, after_commands=2), *_arrivals(5, 16.0, 1.0)]
        ),
    }
)
