"""The correlated-failure study in virtual time: most nodes die, replacements come one by one, strategies are compared.

After INCREMENTAL, section 6, and PROGRESSIVE, section 5: the 15-query topology; 8 of 10 nodes die, at once or one after
another; replacements take 2 to 6 minutes, scaled, or as long as machines of a given file took.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from resurge.errors import SimulationError
from resurge.scheduling import STRATEGIES
from resurge.simulator.faults import Arrive, Fault, KillNamed, Schedule, drawn_arrivals_s
from resurge.simulator.run import simulate
from resurge.simulator.scenarios import Scenario
from resurge.simulator.workload import hashtag_workload, scaled
from resurge.simulator.world import Timing
from resurge.telemetry.events import Event

BEST_CASE = "best-case"
STUDIED = (*STRATEGIES, BEST_CASE)
ARRIVAL_S = (10.0, 30.0)
"""First and last replacement unless told otherwise: the 2 to 6 minutes of the papers, twelve times faster."""
MOST_NODES_CHECKED = 100


@dataclass(frozen=True)
class Study:
    """How the failure is staged, as in the study on a real cluster.

    `load` is the part of each node's capacity that is used before the failure, `headroom` the part of an interval that
    a node works when all of its capacity is used. `gap_s` is the time between two kills; 0 kills at once.
    """

    interval_s: float = 3.0
    checkpoint_interval: int = 5
    killed_at_s: float = 43.5
    gap_s: float = 0.0
    early_s: float = 1.0
    load: float = 0.8
    headroom: float = 0.3
    job_overhead_s: float = 0.5
    after_s: float = 120.0


def simulated_study(
    *,
    nodes: int = 10,
    kill: int = 8,
    partitions: int = 15,
    strategies: Sequence[str] = STUDIED,
    seed: int = 0,
    arrivals_s: Sequence[float] = (),
    arrival_times_s: Sequence[float] = (),
    study: Study = Study(),  # noqa: B008 - a frozen value
) -> dict[str, Sequence[Event]]:
    """The telemetry of every strategy under the same failure.

    Replacements start `arrivals_s` after the first kill; or, if `arrival_times_s` are given, each after one of these, drawn
    at random; or else evenly over `ARRIVAL_S`.

    >>> events = simulated_study(nodes=4, kill=2, partitions=15, strategies=["incremental"])
    >>> list(events), len(events["incremental"]) > 20
    (['incremental'], True)
    """
    if not 0 < kill <= nodes:
        raise SimulationError(f"{kill} of {nodes} nodes are to be killed; expected 1 to {nodes}")
    rng = random.Random(seed)
    victims = [f"n{number}" for number in rng.sample(range(nodes), kill)]
    drawn_s = drawn_arrivals_s(arrival_times_s, kill, rng) if arrival_times_s else _evenly(*ARRIVAL_S, kill)
    waits_s = list(arrivals_s) or drawn_s
    found: dict[str, Sequence[Event]] = {}
    for strategy in strategies:
        is_best = strategy == BEST_CASE
        scenario = study_scenario(study, nodes, partitions, victims, [study.early_s] * kill if is_best else waits_s)
        name = "incremental" if is_best else strategy
        outcome = simulate(scenario, seed, name, is_checked=nodes <= MOST_NODES_CHECKED)
        if outcome.broken:
            raise SimulationError(f"{strategy}, seed {seed}: {outcome.broken}")
        found[strategy] = outcome.events
    return found


def study_scenario(study: Study, nodes: int, partitions: int, victims: Sequence[str], waits_s: Sequence[float]) -> Scenario:
    """The 15 queries; these nodes die, and replacements come so long after the first of them died."""
    faults: list[Fault] = [KillNamed(study.killed_at_s + study.gap_s * order, name) for order, name in enumerate(victims)]
    faults += [Arrive(study.killed_at_s + wait_s) for wait_s in waits_s]
    return Scenario(
        "correlated-failure",
        scaled(hashtag_workload(partitions), nodes * study.load),
        nodes,
        1.0,
        Schedule.of(faults),
        timing=Timing(interval_s=study.interval_s, headroom=study.headroom, job_overhead_s=study.job_overhead_s),
        checkpoint_interval=study.checkpoint_interval,
        heals=False,
        settle_s=study.after_s,
    )


def _evenly(first_s: float, last_s: float, count: int) -> list[float]:
    gap_s = (last_s - first_s) / max(1, count - 1)
    return [first_s + gap_s * index for index in range(count)]
