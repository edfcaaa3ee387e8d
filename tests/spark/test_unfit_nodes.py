"""A cluster whose nodes do not all have what tasks need: one has it, one lacks Resurge, one has another Polars."""

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors.posts import posts
from resurge.connectors.sinks import MemorySink
from resurge.errors import JobError
from resurge.model.topology import Topology
from resurge.model.version import VERSION
from resurge.operators.aggregates import count
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.runtime.embedded_cluster.runner import cluster_runner
from resurge.telemetry.events import Event, JobStarted, Warned
from resurge.telemetry.log import TelemetryLog

# -S leaves out what site-packages link to, and with it Resurge, which is installed by a link in development.
PYTHON = """#!/bin/sh
case "$RESURGE_NODE" in
  node-2) PYTHONPATH="$PYTHONPATH:{packages}" exec {python} -S "$@" ;;
  node-3) PYTHONPATH="$PYTHONPATH:{other}" exec {python} "$@" ;;
  *) exec {python} "$@" ;;
esac
"""
OTHER_POLARS = "import polars\npolars.__version__ = '0.0.1'\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Three nodes that run three Pythons."""
    folder = tmp_path_factory.mktemp("python")
    (folder / "other").mkdir()
    (folder / "other" / "sitecustomize.py").write_text(OTHER_POLARS)
    packages = Path(sysconfig.get_path("purelib"))
    assert not (packages / "resurge").exists(), "expected Resurge to be installed by a link (pip install -e)"
    python = folder / "python"
    python.write_text(PYTHON.format(packages=packages, python=sys.executable, other=folder / "other"))
    python.chmod(0o755)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYSPARK_PYTHON", str(python))
        with EmbeddedCluster(3) as started:
            yield started


@pytest.fixture(scope="module")
def runner(cluster: EmbeddedCluster) -> Iterator[SparkRunner]:
    """A session with all three."""
    with cluster_runner(cluster, "versions") as opened:
        yield opened


def counted(sink: MemorySink) -> Topology:
    """Posts per user."""
    job = TopologyBuilder("versions", key_groups=4)
    source = job.source("posts", posts(total=2_000, posts_per_epoch=500), event_time="time")
    source.window("busy", "10s", key="user", emit="final", n=count()).query(sink=sink)
    return job.build()


def test_a_node_without_resurge_gets_it_and_one_with_another_polars_is_refused_by_name(
    cluster: EmbeddedCluster, runner: SparkRunner, tmp_path: Path
) -> None:
    """The job runs on the others, and the reason is told."""
    events: list[Event] = []
    telemetry = TelemetryLog()
    telemetry.listeners.append(events.append)
    sink = MemorySink()
    options = RunOptions(str(tmp_path / "job"), interval_s=0, local_root=str(tmp_path))
    run_until_done(Engine(counted(sink), runner, options, telemetry), until_idle=True, drain=True)
    assert sink.table()["n"].sum() == 2_000
    names = {node: executor for executor, node in cluster.executor_nodes(runner.spark).items()}
    started = next(event for event in events if isinstance(event, JobStarted))
    assert set(started.nodes) == {names["node-1"], names["node-2"]}
    refused = [event.message for event in events if isinstance(event, Warned)]
    assert len(refused) == 1
    assert f"node {names['node-3']} on " in refused[0]
    import polars

    assert f"Polars is 0.0.1, expected {polars.__version__}" in refused[0]
    shipped = list(cluster.folder.glob(f"node-2/app-*/{names['node-2']}/resurge-*/resurge/model/version.py"))
    assert shipped
    assert VERSION in shipped[0].read_text()


def test_a_job_without_any_fitting_node_is_refused(cluster: EmbeddedCluster, runner: SparkRunner, tmp_path: Path) -> None:
    """Last in this module, because only the unfit node is left; the job does not wait for ever."""
    cluster.kill("node-1", "node-2")
    options = RunOptions(str(tmp_path / "job"), interval_s=0, local_root=str(tmp_path))
    with pytest.raises(JobError, match=r"no node can run this job: node \d+ on .* Polars is 0\.0\.1"):
        run_until_done(Engine(counted(MemorySink()), SparkRunner(runner.spark), options), until_idle=True)
