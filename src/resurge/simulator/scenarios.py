"""Named scenarios: a workload, the nodes it begins on, and what goes wrong."""

import random
from dataclasses import dataclass, field, replace

from resurge.coordinator.copying import CopySettings
from resurge.coordinator.state import ScaleBounds
from resurge.errors import SimulationError
from resurge.simulator.faults import (
    Arrive,
    Ask,
    Fault,
    Kill,
    RestartDriver,
    Schedule,
    Wanted,
    endurable,
    random_requests,
    random_schedule,
)
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
    overfills_at_last: bool = True
    is_concurrent: bool = True
    balances: bool = False
    scale: ScaleBounds | None = None
    most_epochs_kept: int | None = None
    copying: CopySettings = field(default_factory=CopySettings)

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
    scenario = Scenario(
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
    return _with_slow_writes(scenario, rng)


def _with_slow_writes(scenario: Scenario, rng: random.Random) -> Scenario:
    """The same world, in which checkpoints are written while up to some more epochs run."""
    return replace(scenario, timing=replace(scenario.timing, longest_write_s=rng.choice((0.0, 1.5, 5.0))))


def elastic_scenario(rng: random.Random) -> Scenario:
    """Any disasters, and users who move, drain and balance meanwhile; two of three jobs keep copies."""
    scenario = random_scenario(rng)
    # Half of the runs are calm but for the requests, so that more of them come to their end.
    others = scenario.schedule.faults if rng.random() < 0.5 else ()
    requests = random_requests(rng, scenario.nodes, until_s=14.0)
    is_balanced, copies = rng.random() < 0.5, rng.choice((0, 1, 2))
    copying = CopySettings(copies, {}, rng.choice((None, 1, 3)), rng.choice(("correlated", "even", "baseline")))
    return replace(
        scenario,
        name="elastic",
        nodes=scenario.nodes + 1,
        schedule=Schedule.of(endurable((*others, *requests))),
        balances=is_balanced,
        copying=copying,
    )


def scaling_scenario(rng: random.Random) -> Scenario:
    """Any disasters and requests, while the job chooses how many nodes it has, and users choose too."""
    scenario = elastic_scenario(rng)
    least = rng.randint(1, scenario.nodes)
    bounds = ScaleBounds(least, least + rng.randint(0, 4), rng.uniform(0.5, 3.0), rng.uniform(0.5, 4.0), rng.uniform(0.5, 3.0))
    asks: list[Fault] = [Ask(rng.uniform(0.5, 14.0), Wanted.SCALE, rng.randrange(10**6)) for _ in range(rng.randint(0, 4))]
    return replace(scenario, name="scaling", schedule=Schedule.of([*scenario.schedule.faults, *asks]), scale=bounds)


def limited_scenario(rng: random.Random) -> Scenario:
    """Nodes stay away for longer than input is kept for their partitions, while anything else may happen."""
    scenario = random_scenario(rng)
    lost: list[Fault] = []
    for _ in range(rng.randint(1, 3)):
        at_s = rng.uniform(0.5, 20.0)
        lost.append(Kill(at_s, rng.randint(1, scenario.nodes)))
        lost += [Arrive(at_s + rng.uniform(0.5, 12.0)) for _ in range(rng.randint(0, 2))]
        lost += [RestartDriver(at_s + rng.uniform(2.0, 14.0), rng.choice((None, *range(8)))) for _ in range(rng.randint(0, 2))]
    others = scenario.schedule.faults if rng.random() < 0.5 else ()
    return replace(
        scenario,
        name="limited",
        nodes=scenario.nodes + 1,
        schedule=Schedule.of([*others, *lost, Arrive(rng.uniform(20.0, 40.0))]),
        checkpoint_interval=rng.choice((2, 4)),
        most_epochs_kept=rng.choice((2, 5, 9)),
    )


def crowded_scenario(rng: random.Random) -> Scenario:
    """Nodes stay away for long, and those that are left have room for everything together, but seldom for what is lost alone."""
    scenario = random_scenario(rng)
    costs = scenario.workload.costs
    nodes, lost = rng.randint(4, 8), rng.randint(1, 2)
    capacity = max(1.1 * max(costs.values()), scenario.workload.total_cost / (nodes - lost) / rng.uniform(0.8, 0.98))
    kills = [Kill(rng.uniform(0.5, 8.0), 1) for _ in range(lost)]
    others = scenario.schedule.faults if rng.random() < 0.4 else ()
    faults = [*kills, *others, Arrive(rng.uniform(25.0, 40.0))]
    return replace(scenario, name="crowded", nodes=nodes, capacity=capacity, schedule=Schedule.of(faults), balances=True)
