"""Failures and arrivals of real clusters; where the files are absent, small stand-ins of the same format."""

import random
from pathlib import Path

import pytest

from resurge.experiments.correlated_failure import arrivals
from resurge.model.scenes import Scene
from resurge.scheduling import STRATEGIES
from resurge.simulator.faults import Schedule, drawn_arrivals_s, lanl_schedule, spot_schedule
from resurge.simulator.run import simulate
from resurge.simulator.scenarios import USUAL_LOAD, Scenario
from resurge.simulator.study import simulated_study
from resurge.simulator.workload import hashtag_workload, scaled
from resurge.telemetry.events import NodeJoined
from resurge.traces import arrival_times_s

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
LANL = DATA / "failures" / "lanl_systems_18_19.csv.gz"
SPOT = DATA / "failures" / "ec2_spot_g4dn.csv"
ARRIVAL = DATA / "node_arrival" / "aws_startup_sample.csv.gz"


def needs(path: Path) -> Path:
    """A file of real data, or skip."""
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    return path


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


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_real_cluster_failures_are_recovered_from(strategy: str, seed: int) -> None:
    """Consecutive failures of two large clusters, from different points on."""
    schedule = lanl_schedule(needs(LANL), nodes=8, failures=20, until_s=30.0, rng=random.Random(seed))
    assert simulate(scenario(schedule), seed, strategy).broken is None


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_real_spot_cluster_is_recovered_from(strategy: str) -> None:
    """Eleven hours of machines given and taken, in a minute."""
    assert simulate(scenario(spot_schedule(needs(SPOT), 60.0, 12), nodes=3), 0, strategy).broken is None


def test_replacements_come_as_late_as_real_machines_did() -> None:
    """The study draws arrival times from measured start-up times."""
    times_s = arrival_times_s(needs(ARRIVAL))
    assert len(times_s) == 15_000
    scene = Scene("two", "incremental", 2, arrivals(2, 3, 0.0, 60.0, needs(ARRIVAL)))
    [(_, _, events)] = simulated_study({"scenes": [scene]}, nodes=4, seed=3)
    joined = [event.at_s for event in events if isinstance(event, NodeJoined)]
    assert len(joined) == 2
    assert drawn_arrivals_s(times_s, 5, random.Random(1)) == drawn_arrivals_s(times_s, 5, random.Random(1))
