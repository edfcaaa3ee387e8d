"""A runner on an embedded cluster: each executor is as fast as its node's share of a core."""

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from resurge.errors import JobError
from resurge.model.names import NodeId
from resurge.runtime.driver.gateway import end_java_process
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.scaling import Scaler, SparkScaler
from resurge.runtime.driver.session import open_session
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.driver.spark_settings import is_in_process
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster, cluster_at
from resurge.runtime.embedded_cluster.hosts import DRIVER, HostNetwork

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def runner_on(master: str, name: str, log: Path | None = None, settings: dict[str, str] | None = None) -> SparkRunner:
    """A session and a runner on any master; one that is an embedded cluster of this machine brings its own settings."""
    cluster = _cluster_of(master)
    if cluster is None:
        return SparkRunner(open_session(master, name, settings, log))
    if (network := cluster.network) is not None:
        os.environ["SPARK_LOCAL_IP"] = network.address(DRIVER)
        network.enter(DRIVER)
    return _runner(cluster, name, log, settings)


class EmbeddedScaler:
    """Starts and ends nodes of an embedded cluster, as fast as the others are."""

    def __init__(self, cluster: EmbeddedCluster, spark: "SparkSession") -> None:
        self._cluster = cluster
        self._spark = spark

    def request(self, total: int) -> None:
        """Start as many nodes as are missing, with what the others leave of this machine until they are warm."""
        alive = [node for node in self._cluster.nodes() if node.is_alive]
        if len(alive) < total:
            self._cluster.add(total - len(alive), alive[0].cpu_share if alive else None, gently=True)

    def release(self, nodes: Collection[NodeId]) -> None:
        """End nodes with all their processes."""
        names = self._cluster.executor_nodes(self._spark)
        self._cluster.kill(*(names[node] for node in nodes if node in names))

    def joined(self) -> None:
        """A node that is warm is as good as the others."""
        self._cluster.restore_priority()


def refuse_scale(master: str, options: RunOptions) -> None:
    """Refuse to scale where there is nothing to scale, before Spark is started."""
    if options.scale is not None and is_in_process(master):
        raise JobError(f"--scale needs a cluster, and {master} has one node only; leave it out, or name another --master")


def scaler_on(runner: SparkRunner) -> Scaler:
    """Who changes the number of nodes on a runner's master: Spark, or for an embedded cluster of this machine that cluster itself."""
    cluster = _cluster_of(runner.master)
    return SparkScaler(runner.context) if cluster is None else EmbeddedScaler(cluster, runner.spark)


def _cluster_of(master: str) -> EmbeddedCluster | None:
    return cluster_at(master) if master.startswith(("spark://127.0.0.1", "spark://10.77.")) else None


@contextlib.contextmanager
def cluster_runner(cluster: EmbeddedCluster, name: str = "resurge", executors: int | None = None) -> Iterator[SparkRunner]:
    """A session on the cluster and a runner for it; waits until so many executors have joined."""
    network = cluster.network
    with contextlib.nullcontext() if network is None else _on_driver_host(network):
        runner = _runner(cluster, name)
        try:
            wanted = executors if executors is not None else sum(node.is_alive for node in cluster.nodes())
            cluster.wait_for(runner.spark, wanted)
            yield runner
        finally:
            runner.spark.stop()


@contextlib.contextmanager
def _on_driver_host(network: HostNetwork) -> Iterator[None]:
    """Run Spark's driver on its own host. A Java process stays on the host where it began, so each host needs its own."""
    before = os.environ.get("SPARK_LOCAL_IP")
    end_java_process()
    os.environ["SPARK_LOCAL_IP"] = network.address(DRIVER)
    try:
        with network.inside(DRIVER):
            try:
                yield
            finally:
                end_java_process()
    finally:
        os.environ.pop("SPARK_LOCAL_IP")
        if before is not None:
            os.environ["SPARK_LOCAL_IP"] = before


def _runner(cluster: EmbeddedCluster, name: str, log: Path | None = None, settings: dict[str, str] | None = None) -> SparkRunner:
    spark = open_session(cluster.master_url, name, cluster.settings() | (settings or {}), log)
    shares: dict[str, float] = {}
    domains: dict[str, str] = {}

    def cpu_share(executor: str) -> float:
        if executor not in shares:
            by_name = {node.name: node.cpu_share for node in cluster.nodes()}
            names = cluster.executor_nodes(spark)
            if executor not in names:
                return 1.0
            shares[executor] = by_name[names[executor]]
        return shares[executor]

    def domain(executor: str) -> str:
        if executor not in domains:
            by_name = {node.name: node.domain for node in cluster.nodes()}
            names = cluster.executor_nodes(spark)
            if executor not in names:
                return ""
            domains[executor] = by_name[names[executor]]
        return domains[executor]

    return SparkRunner(spark, cpu_share, lambda: cluster.executor_nodes(spark), domain)
