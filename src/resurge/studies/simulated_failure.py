"""The correlated-failure study in virtual time: most nodes die, replacements come one by one, strategies are compared.

After INCREMENTAL, section 6, and PROGRESSIVE, section 5: the 15-query topology; 8 of 10 nodes die, at once or one after
another; replacements take 2 to 6 minutes, scaled, or as long as machines of a given file took.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import cpu_count, get_context

from resurge.errors import SimulationError
from resurge.simulator.faults import Arrive, Fault, KillChosen, Schedule
from resurge.simulator.scenarios import Scenario
from resurge.simulator.simulation import simulate
from resurge.simulator.workload import scaled
from resurge.simulator.world import Timing
from resurge.studies.failure_cases import FailureCase
from resurge.studies.figures import nodes_to_kill
from resurge.studies.hashtag_workload import hashtag_workload
from resurge.telemetry.events import Event

MOST_NODES_CHECKED = 100
LARGE_POLL_S = 0.5
LEAST_SHARED_OUT = 500
"""Cases of so many partitions are simulated by several processes; smaller ones are over before these have started."""


@dataclass(frozen=True)
class Study:
    """The circumstances of the failure, with the times that the study on a real cluster showed.

    `load` is the part of each node's capacity that is used before the failure, `headroom` the part of an interval that
    a node works when all of its capacity is used, `longest` the most intervals of input that an epoch takes.
    """

    interval_s: float = 5.0
    checkpoint_interval: int = 3
    killed_at_s: float = 54.0
    load: float = 0.8
    headroom: float = 0.25
    longest: float = 1.1
    fixed_share: float = 0.45
    job_overhead_s: float = 0.3
    node_overhead_s: float = 0.09
    detection_s: float = 0.8
    warm_up_s: float = 20.0
    after_s: float = 120.0


def simulated_study(
    figures: Mapping[str, Sequence[FailureCase]],
    nodes: int = 10,
    partitions: int = 15,
    seed: int = 0,
    study: Study = Study(),  # noqa: B008 - a frozen value
) -> Iterator[tuple[str, str, Sequence[Event]]]:
    """Figure, case and telemetry of all cases; by seed the same nodes die in each.

    >>> case = FailureCase("incremental", "incremental", 2, (5.0, 9.0))
    >>> [(figure, name, events)] = simulated_study({"strategies": [case]}, nodes=4)
    >>> figure, name, len(events) > 20
    ('strategies', 'incremental', True)
    """
    cases = [(figure, case) for figure, group in figures.items() for case in group]
    workers = min(cpu_count(), len(cases))
    if workers <= 1 or partitions < LEAST_SHARED_OUT:
        for figure, case in cases:
            yield figure, case.name, _simulated(case, study, nodes, partitions, seed)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        coming = [pool.submit(_simulated, case, study, nodes, partitions, seed) for _, case in cases]
        for (figure, case), future in zip(cases, coming, strict=True):
            yield figure, case.name, future.result()


def _simulated(case: FailureCase, study: Study, nodes: int, partitions: int, seed: int) -> Sequence[Event]:
    if not 0 < case.kill <= nodes:
        raise SimulationError(f"{case.kill} of {nodes} nodes are to be killed; expected 1 to {nodes}")
    outcome = simulate(
        scenario_of(case, study, nodes, partitions, seed), seed, case.strategy, is_checked=nodes <= MOST_NODES_CHECKED
    )
    if outcome.broken:
        raise SimulationError(f"{case.name}, seed {seed}: {outcome.broken}")
    return outcome.events


def scenario_of(case: FailureCase, study: Study, nodes: int, partitions: int, seed: int) -> Scenario:
    """The 15 queries on a cluster of its own; the case's nodes die, and replacements come so long after the first."""
    at_s = study.killed_at_s
    choose = partial(nodes_to_kill, case=case, seed=seed)
    turns = [KillChosen(at_s + case.gap_s * turn, choose, turn) for turn in range(case.kill)]
    faults: list[Fault] = [*turns] if case.gap_s else [KillChosen(at_s, choose)]
    faults += [Arrive(at_s + wait_s) for wait_s in case.arrivals_s]
    timing = Timing(
        interval_s=study.interval_s,
        headroom=study.headroom,
        job_overhead_s=study.job_overhead_s,
        # A driver of a thousand nodes is not the two cores of a test machine.
        node_overhead_s=study.node_overhead_s if nodes <= MOST_NODES_CHECKED else 0.0,
        detection_s=study.detection_s,
        warm_up_s=study.warm_up_s,
        fixed_share=study.fixed_share,
        # Of a thousand nodes, several join between two looks.
        poll_s=Timing.poll_s if nodes <= MOST_NODES_CHECKED else LARGE_POLL_S,
        max_rows_per_epoch=round(study.longest * study.interval_s * Timing.rows_per_s),
    )
    return Scenario(
        "correlated-failure",
        scaled(hashtag_workload(partitions), nodes * study.load),
        nodes,
        1.0,
        Schedule.of(faults),
        timing=timing,
        checkpoint_interval=study.checkpoint_interval,
        heals=False,
        settle_s=study.after_s,
        overfills_at_last=True,
        balances=True,
    )
