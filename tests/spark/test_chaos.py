"""Nodes of a real cluster are killed with kill -9, cut off and stopped by seed, and no row is lost or published twice."""

from collections.abc import Iterator
from itertools import chain, count, islice

import polars as pl
import pytest

from resurge.cli.chaos import repeating
from resurge.experiments import chaos
from resurge.experiments.failure_schedules import FailureSchedules
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster import hosts
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.testing.fault_injection import FAULTS
from resurge.testing.inline_runner import InlineRunner

NODES = 3
# A short and a long disturbance, one that is waited for, one and two nodes at once; the seeds in between are of the same kinds.
SEEDS = (2, 5, 6)
WHY_NO_HOSTS = hosts.why_not()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many seeds as asked for."""
    if "seed" in metafunc.fixturenames:
        others = (seed for seed in count(1) if seed not in SEEDS)
        metafunc.parametrize("seed", list(islice(chain(SEEDS, others), metafunc.config.getoption("--chaos-seeds"))))


@pytest.fixture(scope="module")
def wanted() -> dict[str, pl.DataFrame]:
    """What the job shows when nothing happens."""
    return chaos.execute(InlineRunner(2), "incremental")


@pytest.fixture(scope="module")
def arena() -> Iterator[tuple[EmbeddedCluster, SparkRunner]]:
    """One cluster for all seeds; its nodes have hosts of their own where the machine allows that."""
    with chaos.arena(NODES, FAULTS if WHY_NO_HOSTS is None else ("kill",)) as made:
        yield made


@pytest.mark.parametrize("fault", FAULTS)
def test_nodes_that_fail_change_no_output(
    fault: str, seed: int, arena: tuple[EmbeddedCluster, SparkRunner], wanted: dict[str, pl.DataFrame]
) -> None:
    """Every query publishes exactly the rows of the failure-free run, each once; the driver's inputs replay to the same decisions."""
    if fault == "cut" and WHY_NO_HOSTS is not None:
        pytest.skip(f"links cannot be cut: {WHY_NO_HOSTS}")
    schedules = FailureSchedules(chaos.EPOCHS, NODES, faults=(fault,))
    verdict = chaos.run_seed(arena, seed, "incremental", schedules, wanted)
    assert (verdict.lost, verdict.duplicated) == (0, 0), repeating(seed, NODES, "incremental", faults=fault)
    assert verdict.kills or verdict.disturbed
    assert verdict.difference == ""
