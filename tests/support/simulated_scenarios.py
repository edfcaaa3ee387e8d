"""Named scenarios: the 15 queries in a simulated world, and what goes wrong there."""

from collections.abc import Mapping
from types import MappingProxyType

from resurge.simulator.faults import EVERYTHING, Arrive, Choice, Fault, Kill, Moment, RestartDriver, Schedule
from resurge.simulator.scenarios import Scenario
from resurge.simulator.workload import scaled
from resurge.studies.hashtag_workload import hashtag_workload

USUAL_LOAD = 0.8
"""The part of the nodes' capacity that the queries take."""


def hashtag_scenario(name: str, faults: list[Fault], nodes: int = 10, partitions: int = 30) -> Scenario:
    """The 15 queries on nodes that are usually four fifths full."""
    workload = scaled(hashtag_workload(partitions), nodes * USUAL_LOAD)
    return Scenario(name, workload, nodes, 1.0, Schedule.of(faults))


def _arrivals(count: int, first_s: float, gap_s: float) -> list[Fault]:
    return [Arrive(first_s + gap_s * index) for index in range(count)]


SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        "one-node": hashtag_scenario("one-node", [Kill(12.0), Arrive(20.0)]),
        "eight-of-ten": hashtag_scenario("eight-of-ten", [Kill(12.0, 8), *_arrivals(8, 16.0, 2.0)]),
        "one-after-another": hashtag_scenario(
            "one-after-another", [*(Kill(12.0 + 2 * turn) for turn in range(8)), *_arrivals(8, 16.0, 2.0)]
        ),
        "rack": hashtag_scenario("rack", [Kill(12.0, EVERYTHING, Choice.ONE_DOMAIN), *_arrivals(5, 16.0, 1.0)]),
        "everything": hashtag_scenario("everything", [Kill(12.0, EVERYTHING), *_arrivals(10, 16.0, 1.0)]),
        "during-recovery": hashtag_scenario(
            "during-recovery",
            [Kill(12.0, 4), *(Kill(13.0, 1, Choice.ANY, Moment.IN_RECOVERY) for _ in range(3)), *_arrivals(7, 16.0, 1.0)],
        ),
        "flapping": hashtag_scenario(
            "flapping",
            [Kill(12.0, 3), *(fault for t in range(5) for fault in (Arrive(14.0 + t), Kill(14.8 + t, 1, Choice.NEWEST)))],
        ),
        "driver-restart": hashtag_scenario(
            "driver-restart", [Kill(12.0, 5), RestartDriver(14.0, after_commands=2), *_arrivals(5, 16.0, 1.0)]
        ),
    }
)
