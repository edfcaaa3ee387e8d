"""One cluster of three nodes for all tests of this folder: most of what a short test on a cluster costs is to start one."""

from collections.abc import Iterator

import pytest

from resurge.experiments.chaos import arena as started
from resurge.experiments.chaos import replenish
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster

NODES = 3


@pytest.fixture(scope="package")
def shared() -> Iterator[tuple[EmbeddedCluster, SparkRunner]]:
    """The cluster and a session on it."""
    with started(NODES) as made:
        yield made


@pytest.fixture
def arena(shared: tuple[EmbeddedCluster, SparkRunner]) -> tuple[EmbeddedCluster, SparkRunner]:
    """The cluster with three nodes, whatever the test before left; replacements have names of their own."""
    replenish(*shared, NODES)
    return shared


@pytest.fixture
def names(arena: tuple[EmbeddedCluster, SparkRunner]) -> list[str]:
    """The names of its nodes."""
    return [node.name for node in arena[0].nodes() if node.is_alive]
