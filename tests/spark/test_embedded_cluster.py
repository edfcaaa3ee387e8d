"""A real cluster of two nodes on this machine: pinned tasks, a killed node, a new node, and nothing left afterwards."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from resurge.errors import ClusterError
from resurge.runtime.driver.session import open_session
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster import standalone
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster, cluster_at, executor_ids
from resurge.runtime.embedded_cluster.processes import is_running, marked
from tests.support.processes import wait_until

OWNER = """
import sys, time
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
with EmbeddedCluster(1, folder=sys.argv[1]) as cluster:
    print(cluster.nodes()[0].worker_pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Two nodes in two domains, one of them half as fast."""
    with EmbeddedCluster(2, cpu_share=[1.0, 0.5], domains=["r1", "r2"]) as started:
        yield started


@pytest.fixture(scope="module")
def spark(cluster: EmbeddedCluster) -> Iterator[Any]:
    """A session on the cluster."""
    session = open_session(cluster.master_url, settings=cluster.settings())
    yield session
    session.stop()


def where_tasks_ran(spark: Any, executors: list[str]) -> list[tuple[str, str, str]]:
    """One short task pinned to each executor: the executor it ran on, its node, and that node's share."""
    from pyspark import RDD
    from pyspark.serializers import CPickleSerializer

    def ran(items: Any) -> list[tuple[str, str, str]]:
        import time

        from resurge.runtime.worker.executor import executor_id

        list(items)
        time.sleep(0.02)
        return [(executor_id() or "", os.environ["RESURGE_NODE"], os.environ["RESURGE_CPU_SHARE"])]

    runner = SparkRunner(spark)
    runner.members()
    placed = runner._rdds.placed(runner._locations(executors), 0)
    rdd = RDD(spark._jvm.org.apache.spark.api.java.JavaRDD.fromRDD(placed, placed.elementClassTag()), spark.sparkContext)
    return list(rdd.mapPartitions(ran)._reserialize(CPickleSerializer()).collect())


def processes_of(cluster: EmbeddedCluster) -> list[psutil.Process]:
    """Every process of a cluster."""
    return marked(f"{cluster.folder}#")


def test_pinned_tasks_wait_for_their_executor(cluster: EmbeddedCluster, spark: Any) -> None:
    """Though the other node is idle, no task moves there; a task knows its node and how fast that may be."""
    nodes = cluster.wait_for(spark, 2)
    first, second = sorted(nodes)
    wanted = [first] * 20 + [second]
    share = {"node-1": "1.0", "node-2": "0.5"}
    assert where_tasks_ran(spark, wanted) == [(e, nodes[e], share[nodes[e]]) for e in wanted]


def test_everything_listens_on_loopback_only(cluster: EmbeddedCluster, spark: Any) -> None:
    """Master, workers and executors are reachable from this machine and from nowhere else."""
    cluster.wait_for(spark, 2)
    listening = {c.laddr.ip for p in processes_of(cluster) for c in p.net_connections() if c.status == psutil.CONN_LISTEN}
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert listening


def arguments_of(process: psutil.Process) -> list[str]:
    """A process's arguments; one that has ended has none."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_only_who_knows_the_secret_can_join_and_nobody_else_can_read_it(cluster: EmbeddedCluster, spark: Any) -> None:
    """A worker without it is refused; arguments, which all users of a machine can read, do not have it."""
    cluster.wait_for(spark, 2)
    secret = cluster.settings()["spark.authenticate.secret"]
    assert len(secret) >= 32
    assert (cluster.folder / "cluster.json").stat().st_mode & 0o077 == 0
    everybody = [*processes_of(cluster), psutil.Process(), *psutil.Process().children(recursive=True)]
    assert not [process for process in everybody if secret in " ".join(arguments_of(process))]

    log = cluster.folder / "stranger.log"
    command = standalone.worker_command(cluster.master_url, 1, "600m", cluster.folder / "stranger")
    with log.open("wb") as file:
        environment = standalone.daemon_environment(f"{cluster.folder}#stranger/", "another secret")
        stranger = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "Failed to connect to master" in log.read_text(), "the refusal")
        assert "Successfully registered" not in log.read_text()
    finally:
        stranger.kill()
        stranger.wait()


def test_a_cluster_is_found_by_its_master(cluster: EmbeddedCluster) -> None:
    """A job that is given a URL can ask for the nodes behind it."""
    found = cluster_at(cluster.master_url)
    assert found is not None
    assert found.nodes() == cluster.nodes()


def test_a_killed_node_disappears_with_all_its_processes_and_a_new_one_joins(cluster: EmbeddedCluster, spark: Any) -> None:
    """Worker, executor and Python workers end at once; the executor of the new node takes pinned tasks."""
    before = cluster.wait_for(spark, 2)
    where_tasks_ran(spark, list(before))
    doomed = [p for p in processes_of(cluster) if p.environ().get("RESURGE_NODE") == "node-2"]
    assert len(doomed) >= 3, "expected a worker, an executor and Python"

    cluster.kill("node-2")
    assert not [p for p in doomed if is_running(p)]
    wait_until(lambda: len(executor_ids(spark)) == 1, "the loss of the executor", 20)
    assert list(cluster.executor_nodes(spark).values()) == ["node-1"]
    assert [(n.name, n.is_alive) for n in cluster.nodes()] == [("node-1", True), ("node-2", False)]

    assert cluster.add(domain="r2") == ["node-3"]
    after = cluster.wait_for(spark, 2)
    new = next(e for e, node in after.items() if node == "node-3")
    assert new not in before
    assert where_tasks_ran(spark, [new]) == [(new, "node-3", "1.0")]


def test_an_unknown_node_is_refused_and_nothing_is_killed(cluster: EmbeddedCluster) -> None:
    """One wrong name among right ones kills nobody."""
    before = cluster.nodes()
    with pytest.raises(ClusterError, match="no node node-9"):
        cluster.kill("node-1", "node-9")
    assert cluster.nodes() == before


def test_a_cluster_dies_with_the_process_that_owns_it(tmp_path: Path) -> None:
    """Also if that is killed with kill -9 and cannot clean up."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert owner.stdout is not None
        worker = psutil.Process(int(owner.stdout.readline()))
        assert is_running(worker)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        wait_until(lambda: not is_running(worker) and not marked(f"{tmp_path}#"), "the end of the cluster", 20)
    finally:
        owner.kill()
        owner.wait()


def test_the_command_starts_kills_adds_and_stops_a_cluster_that_outlives_it(tmp_path: Path) -> None:
    """Each command is a process of its own; the state file is all they share."""

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-c", "from resurge.cli.main import run; run()", "cluster", *arguments, "--folder", str(tmp_path)]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    def nodes() -> list[tuple[str, str, float, bool]]:
        found = json.loads(command("status", "--json").stdout)["nodes"]
        return [(n["name"], n["domain"], n["cpu_share"], n["is_alive"]) for n in found]

    try:
        assert command("start", "--nodes", "0").stdout.startswith("spark://127.0.0.1:")
        assert "runs in" in command("start").stderr
        assert command("add", "--domain", "r2", "--cpu-share", "0.5").stdout == "node-1\n"
        refused = command("kill", "node-7")
        assert refused.returncode == 1
        assert refused.stderr == "resurge: there is no node node-7; expected one of node-1\n"
        assert nodes() == [("node-1", "r2", 0.5, True)]
        assert command("kill", "node-1").returncode == 0
        assert nodes() == [("node-1", "r2", 0.5, False)]
    finally:
        command("stop")
    assert not marked(f"{tmp_path}#")
    assert "no cluster runs in" in command("stop").stderr


def test_stopping_leaves_no_process_and_no_folder(cluster: EmbeddedCluster, spark: Any) -> None:
    """Last in this module: the cluster is gone afterwards."""
    spark.stop()
    everything = processes_of(cluster)
    assert everything
    cluster.stop()
    assert not [p for p in everything if is_running(p)]
    assert not cluster.folder.exists()
