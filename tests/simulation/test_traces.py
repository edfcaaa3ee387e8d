"""Failures and arrivals as real clusters had them: generated files of the same formats, and the real ones where they are there."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from resurge.coordinator.scheduling import STRATEGIES
from resurge.experiments.traces import arrival_times_s, drawn_arrivals_s
from resurge.simulator.faults import Schedule
from resurge.simulator.scenarios import Scenario
from resurge.simulator.simulation import simulate
from resurge.simulator.workload import scaled
from resurge.studies.correlated_failure import arrivals
from resurge.studies.failure_cases import FailureCase
from resurge.studies.hashtag_workload import hashtag_workload
from resurge.studies.simulated_failure import simulated_study
from resurge.telemetry.events import NodeJoined
from tests.support.generated import write_failures, write_spot_cluster, write_start_up_times
from tests.support.real_data import real
from tests.support.simulated_scenarios import USUAL_LOAD
from tests.support.trace_schedules import lanl_schedule, spot_schedule

GENERATED = "generated"


def file_of(kind: Path | str, make: Callable[[Path, int], Path], folder: Path) -> Path:
    """A real file as it is; or one that is generated now."""
    return kind if isinstance(kind, Path) else make(folder / "generated.csv", 1)


def name_of(kind: Path | str) -> str:
    """A file as a test's name shows it."""
    return kind.name.split(".")[0] if isinstance(kind, Path) else kind


def scenario(schedule: Schedule, labels: tuple[str, ...] = (), nodes: int = 8) -> Scenario:
    """The 15 queries under a schedule."""
    return Scenario("trace", scaled(hashtag_workload(30), nodes * USUAL_LOAD), nodes, 1.0, schedule, labels=labels)


@pytest.fixture
def lanl_stand_in(tmp_path: Path) -> Path:
    """Three nodes in the same minute, one later."""
    path = tmp_path / "failures.csv"
    rows = [(1, "08:45", "09:15"), (2, "08:45", "09:00"), (3, "08:45", "10:00"), (5, "09:30", "09:40")]
    lines = [f"18,{node},2002-05-06T{start}:00,2002-05-06T{end}:00,30,Hardware,1024,No" for node, start, end in rows]
    path.write_text("system,node,start,end,down_minutes,cause,nodes_in_system,same_event\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def spot_stand_in(tmp_path: Path) -> Path:
    """Four machines come, two go, one comes back."""
    path = tmp_path / "spot.csv"
    changes = ["0,add,node1", "0,add,node2", "60000,add,node3", "60000,add,node4", "120000,remove,node1", "120000,remove,node2"]
    path.write_text("\n".join([*changes, "300000,add,node1"]) + "\n")
    return path


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_failures_in_the_format_of_lanl_are_recovered_from(lanl_stand_in: Path, strategy: str) -> None:
    """A stand-in of the same format."""
    schedule = lanl_schedule(lanl_stand_in, nodes=8, failures=4, until_s=20.0, rng=random.Random(0))
    assert simulate(scenario(schedule), 0, strategy).broken is None


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_spot_cluster_that_comes_and_goes_is_recovered_from(spot_stand_in: Path, strategy: str) -> None:
    """A stand-in of the same format, beside nodes that stay."""
    assert simulate(scenario(spot_schedule(spot_stand_in, 20.0, 10), nodes=2), 0, strategy).broken is None


@pytest.mark.parametrize("kind", [GENERATED, *real("failures/lanl_systems_18_19.csv.gz")], ids=name_of)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_failures_of_large_clusters_are_recovered_from(strategy: str, seed: int, kind: Path | str, tmp_path: Path) -> None:
    """Consecutive failures of large clusters, from different points on."""
    schedule = lanl_schedule(file_of(kind, write_failures, tmp_path), nodes=8, failures=20, until_s=30.0, rng=random.Random(seed))
    assert simulate(scenario(schedule), seed, strategy).broken is None


@pytest.mark.parametrize("kind", [GENERATED, *real("failures/ec2_spot_g4dn.csv")], ids=name_of)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_large_spot_cluster_is_recovered_from(strategy: str, kind: Path | str, tmp_path: Path) -> None:
    """Hours of machines given and taken, in a minute."""
    schedule = spot_schedule(file_of(kind, write_spot_cluster, tmp_path), 60.0, 12)
    assert simulate(scenario(schedule, nodes=3), 0, strategy).broken is None


@pytest.mark.parametrize("kind", [GENERATED, *real("node_arrival/aws_startup_sample.csv.gz")], ids=name_of)
def test_replacements_come_as_late_as_machines_do(kind: Path | str, tmp_path: Path) -> None:
    """The study draws arrival times from measured start-up times."""
    path = file_of(kind, write_start_up_times, tmp_path)
    times_s = arrival_times_s(path)
    assert len(times_s) == (500 if kind == GENERATED else 15_000)
    case = FailureCase("two", "incremental", 2, arrivals(2, 3, 0.0, 60.0, path))
    [(_, _, events)] = simulated_study({"cases": [case]}, nodes=4, seed=3)
    joined = [event.at_s for event in events if isinstance(event, NodeJoined)]
    assert len(joined) == 2
    assert drawn_arrivals_s(times_s, 5, random.Random(1)) == drawn_arrivals_s(times_s, 5, random.Random(1))
