"""Nodes of a real cluster are killed with kill -9 by seed, and no row is lost or repeated."""

from collections.abc import Iterator

import polars as pl
import pytest

from resurge.cli.chaos import repeating
from resurge.experiments import chaos
from resurge.experiments.failure_schedules import FailureSchedules
from resurge.runtime.driver.cluster import EmbeddedCluster
from resurge.runtime.driver.runner import InlineRunner
from resurge.runtime.driver.spark_runner import SparkRunner

NODES = 4
SCHEDULES = FailureSchedules(chaos.EPOCHS, NODES)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many seeds as asked for."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(1, 1 + metafunc.config.getoption("--chaos-seeds")))


@pytest.fixture(scope="module")
def wanted() -> dict[str, pl.DataFrame]:
    """What the job shows when nothing happens."""
    return chaos.execute(InlineRunner(2), "incremental")


@pytest.fixture(scope="module")
def arena() -> Iterator[tuple[EmbeddedCluster, SparkRunner]]:
    """One cluster for all seeds."""
    with chaos.arena(NODES) as made:
        yield made


def test_killed_and_added_nodes_change_no_output(
    seed: int, arena: tuple[EmbeddedCluster, SparkRunner], wanted: dict[str, pl.DataFrame]
) -> None:
    """Every query shows exactly the rows of the failure-free run, each in its epoch."""
    verdict = chaos.run_seed(arena, seed, "incremental", SCHEDULES, wanted)
    assert (verdict.lost, verdict.duplicated) == (0, 0), repeating(seed, NODES, "incremental")
    assert verdict.kills
