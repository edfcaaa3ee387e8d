"""A runner on an embedded cluster: each executor is as fast as its node's share of a core."""

import contextlib
from collections.abc import Iterator

from resurge.runtime.driver.cluster import EmbeddedCluster
from resurge.runtime.driver.session import open_session
from resurge.runtime.driver.spark_runner import SparkRunner


@contextlib.contextmanager
def cluster_runner(cluster: EmbeddedCluster, name: str = "resurge", executors: int | None = None) -> Iterator[SparkRunner]:
    """A session on the cluster and a runner for it; waits until so many executors have joined."""
    spark = open_session(cluster.master_url, name, cluster.settings())
    shares: dict[str, float] = {}

    def cpu_share(executor: str) -> float:
        if executor not in shares:
            by_name = {node.name: node.cpu_share for node in cluster.nodes()}
            names = cluster.executor_nodes(spark)
            if executor not in names:
                return 1.0
            shares[executor] = by_name[names[executor]]
        return shares[executor]

    try:
        cluster.wait_for(spark, executors if executors is not None else sum(node.is_alive for node in cluster.nodes()))
        yield SparkRunner(spark, cpu_share)
    finally:
        spark.stop()
