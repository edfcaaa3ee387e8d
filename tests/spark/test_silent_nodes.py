"""A node of a real cluster hangs: nothing ends, no connection closes, and only its silence tells."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import psutil
import pytest
from polars.testing import assert_frame_equal

from resurge.api.builder import TopologyBuilder
from resurge.connectors.posts import posts
from resurge.connectors.sinks import MemorySink
from resurge.model.topology import Topology
from resurge.operators.aggregates import count
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster, executor_ids
from resurge.runtime.embedded_cluster.processes import marked
from resurge.runtime.embedded_cluster.runner import cluster_runner
from resurge.telemetry.events import EpochFinished, Event, NodeJoined, NodeLost, NodeResponded, NodeSuspected
from resurge.telemetry.log import TelemetryLog
from resurge.testing.inline_runner import InlineRunner
from tests.support.processes import wait_until

NODES = 3
# Without a heartbeat for so long, Spark itself gives an executor up; a hung node must be found long before.
HEARTBEAT_TIMEOUT_S = 60.0
EPOCHS = 16
POSTS_PER_EPOCH = 300
VICTIM = "node-2"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Three nodes, with patience."""
    with EmbeddedCluster(NODES, heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S) as started:
        yield started


@pytest.fixture(scope="module")
def runner(cluster: EmbeddedCluster) -> Iterator[SparkRunner]:
    """One session for all that hangs."""
    with cluster_runner(cluster, "silence") as opened:
        yield opened


def windowed(sink: MemorySink) -> Topology:
    """Sliding windows, one key group for each node, over posts that are cut into the same epochs every time."""
    job = TopologyBuilder("silence", key_groups=NODES)
    source = posts(total=EPOCHS * POSTS_PER_EPOCH, posts_per_epoch=POSTS_PER_EPOCH, zipf=1.1, distinct=2_000)
    tags = job.source("posts", source, event_time="time").flat_map("tags", pl.col("tags").alias("tag"), "time")
    tags.window("busy", "2s", "1s", key="tag", n=count()).query(sink=sink)
    return job.build()


def options(folder: Path) -> RunOptions:
    """Epochs as fast as they can be, and of the same rows however long they take."""
    return RunOptions(str(folder / "job"), interval_s=0, checkpoint_interval=5, back_pressure=False, local_root=str(folder))


def undisturbed(folder: Path) -> pl.DataFrame:
    """What the job shows when nothing happens."""
    sink = MemorySink()
    run_until_done(Engine(windowed(sink), InlineRunner(NODES), options(folder)), until_idle=True, drain=True)
    return sink.table(epoch=True)


def nodes_seen(engine: Engine) -> int:
    """How many nodes the engine may use when it looks again."""
    engine.observe()
    return len(engine.recovery.capacity)


def processes_of_executor(cluster: EmbeddedCluster, executor: str) -> list[psutil.Process]:
    """The processes that work in an executor's folder."""
    found = []
    for process in marked(f"{cluster.folder}#"):
        with contextlib.suppress(psutil.Error):
            if Path(process.cwd()).name == executor:
                found.append(process)
    return found


def test_a_node_that_pauses_is_waited_for_and_not_lost(cluster: EmbeddedCluster, runner: SparkRunner, tmp_path: Path) -> None:
    """It is told who is waited for, and that the node is there again; the output is that of an undisturbed run."""
    events: list[Event] = []
    telemetry = TelemetryLog()
    telemetry.listeners.append(events.append)
    sink = MemorySink()
    engine = Engine(windowed(sink), runner, options(tmp_path / "paused"), telemetry)
    engine.start()
    try:
        engine.run(3)
        cluster.pause(VICTIM)
        running = threading.Thread(target=engine.run, args=(4,), daemon=True)
        running.start()
        wait_until(lambda: any(isinstance(event, NodeSuspected) for event in events), "somebody who is waited for")
        cluster.resume(VICTIM)
        wait_until(lambda: any(isinstance(event, NodeResponded) for event in events), "an answer")
        running.join()
        engine.run(until_idle=True, drain=True)
        stores = Path(engine.edge.frame.local_folder)
        assert len(list(stores.iterdir())) == NODES
        runner.close()
        assert not stores.exists(), "expected the nodes to remove their local stores"
    finally:
        engine.close("the test is over")
    assert not [event for event in events if isinstance(event, NodeLost)]
    assert_frame_equal(sink.table(epoch=True).sort(pl.all()), undisturbed(tmp_path / "undisturbed").sort(pl.all()))


def test_a_node_that_hangs_is_lost_by_silence_and_does_no_harm_when_it_wakes_up(
    cluster: EmbeddedCluster, runner: SparkRunner, tmp_path: Path
) -> None:
    """The job in flight is given up, the partitions recover elsewhere, and the output is that of an undisturbed run."""
    events: list[Event] = []
    paused_s: list[float] = []
    sink = MemorySink()
    telemetry = TelemetryLog()

    def hang() -> None:
        cluster.pause(VICTIM)
        paused_s.append(time.time())

    hanging = threading.Thread(target=hang, daemon=True)

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, EpochFinished) and event.epoch == 6:
            hanging.start()

    telemetry.listeners.append(listen)
    victim = next(executor for executor, node in cluster.executor_nodes(runner.spark).items() if node == VICTIM)
    assert processes_of_executor(cluster, victim)
    engine = Engine(windowed(sink), runner, options(tmp_path / "hung"), telemetry)
    engine.start()
    try:
        engine.run(11)
        hanging.join()
        lost = [event for event in events if isinstance(event, NodeLost)]
        assert [event.node for event in lost] == [victim]
        assert lost[0].partitions > 0, "expected the hung node to have had partitions"
        took_s = lost[0].at_s - paused_s[0]
        print(f"the node that hung was lost after {took_s:.1f} s")
        assert took_s < HEARTBEAT_TIMEOUT_S / 2
        waited_for = [event for event in events if isinstance(event, NodeSuspected) and event.node == victim]
        assert waited_for, "expected to be told who is waited for"
        assert paused_s[0] < waited_for[-1].at_s < lost[0].at_s
        assert engine.recovery.head == 11

        cluster.resume(VICTIM)
        woken_s = time.time()
        # It may finish the task that it hung in, and may be told to end; it is never used again under its old name.
        engine.run(2)
        wait_until(lambda: nodes_seen(engine) == NODES, "a new executor on the woken node")
        print(f"the woken node was there again, as a new one, after {time.time() - woken_s:.1f} s")
        assert victim not in executor_ids(runner.spark)
        wait_until(lambda: not processes_of_executor(cluster, victim), "the end of the executor that had hung")
        engine.run(until_idle=True, drain=True)
    finally:
        engine.close("the test is over")
    new = next(executor for executor, node in cluster.executor_nodes(runner.spark).items() if node == VICTIM)
    assert new != victim
    assert {event.node for event in events if isinstance(event, NodeJoined) and event.at_s > woken_s} == {new}
    assert [event.epoch for event in events if isinstance(event, EpochFinished)] == list(range(1, EPOCHS + 2))
    assert_frame_equal(sink.table(epoch=True).sort(pl.all()), undisturbed(tmp_path / "undisturbed").sort(pl.all()))


def test_stopping_ends_nodes_that_hang(cluster: EmbeddedCluster, runner: SparkRunner) -> None:
    """Last in this module: a stopped process takes no other signal, but it can be killed."""
    runner.spark.stop()
    cluster.pause(VICTIM)
    cluster.stop()
    assert not marked(f"{cluster.folder}#")
    assert not cluster.folder.exists()
