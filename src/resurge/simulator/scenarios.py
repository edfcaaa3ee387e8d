"""Named scenarios: a workload, the nodes it begins on, and what goes wrong."""

import random
from dataclasses import dataclass, field, replace

from resurge.errors import SimulationError
from resurge.simulator.faults import FailJobs, Schedule, random_requests, random_schedule
from resurge.simulator.workload import Workload, random_workload
from resurge.simulator.world import Timing


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
    balances: bool = False

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


def elastic_scenario(rng: random.Random) -> Scenario:
    """Any disasters, and users who move, drain and balance meanwhile."""
    scenario = random_scenario(rng)
    # Half of the runs are calm but for the requests, so that more of them come to their end.
    others = scenario.schedule.faults if rng.random() < 0.5 else ()
    requests = random_requests(rng, scenario.nodes, until_s=14.0)
    failing = [fault for fault in (*others, *requests) if isinstance(fault, FailJobs)]
    # More failures in a row than a driver tries again would end it, and rightly so.
    faults = [fault for fault in (*others, *requests) if fault not in failing[1:]]
    return replace(scenario, name="elastic", nodes=scenario.nodes + 1, schedule=Schedule.of(faults), balances=rng.random() < 0.5)
