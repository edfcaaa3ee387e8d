"""A runner on an embedded cluster: each executor is as fast as its node's share of a core."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from resurge.runtime.driver.gateway import end_java_process
from resurge.runtime.driver.session import open_session
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster, cluster_at
from resurge.runtime.embedded_cluster.hosts import DRIVER, HostNetwork


def runner_on(master: str, name: str, log: Path | None = None, settings: dict[str, str] | None = None) -> SparkRunner:
    """A session and a runner on any master; one that is an embedded cluster of this machine brings its own settings."""
    cluster = cluster_at(master) if master.startswith(("spark://127.0.0.1", "spark://10.77.")) else None
    if cluster is None:
        return SparkRunner(open_session(master, name, settings, log))
    if (network := cluster.network) is not None:
        os.environ["SPARK_LOCAL_IP"] = network.address(DRIVER)
        network.enter(DRIVER)
    return _runner(cluster, name, log, settings)


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

    def cpu_share(executor: str) -> float:
        if executor not in shares:
            by_name = {node.name: node.cpu_share for node in cluster.nodes()}
            names = cluster.executor_nodes(spark)
            if executor not in names:
                return 1.0
            shares[executor] = by_name[names[executor]]
        return shares[executor]

    return SparkRunner(spark, cpu_share, lambda: cluster.executor_nodes(spark))
