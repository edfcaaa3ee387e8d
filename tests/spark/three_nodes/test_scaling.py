"""The number of nodes changes while a job runs: by Spark's own request and kill of executors, and on an embedded cluster."""

import time
from pathlib import Path

from resurge.connectors.sinks import MemorySink
from resurge.model.names import NodeId
from resurge.model.requests import Scale, Verdict
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.scaling import SparkScaler
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster, executor_ids
from resurge.runtime.embedded_cluster.runner import EmbeddedScaler, scaler_on
from resurge.storage.durable import DurableStore
from resurge.storage.requests import carried_out
from resurge.telemetry.events import CatchUpFinished, EpochFinished, Event
from resurge.telemetry.log import TelemetryLog
from tests.properties.test_crash_points import assert_same
from tests.spark.three_nodes.test_moving import options, published, run_while, topology, undisturbed
from tests.support.processes import wait_until

SETTLE_S = 2.0


def test_a_job_gives_a_node_back_and_gets_another_and_no_output_changes(
    arena: tuple[EmbeddedCluster, SparkRunner], tmp_path: Path
) -> None:
    """Three nodes, then two, then three: nothing is recovered, nothing lost, nothing published twice."""
    cluster, runner = arena
    assert isinstance(scaler_on(runner), EmbeddedScaler)
    sink, events = MemorySink(), list[Event]()
    telemetry = TelemetryLog()
    telemetry.listeners.append(events.append)
    scaled = options(tmp_path / "scaled")
    object.__setattr__(scaled, "scale", "2..3")
    engine = Engine(topology(sink), runner, scaled, telemetry, EmbeddedScaler(cluster, runner.spark))
    verdicts, alive = [], list[int]()

    def ask() -> None:
        store = DurableStore(engine.store.url)
        for nodes in (9, 2, 3):
            verdicts.append(carried_out(store, engine.journal.generation, Scale(f"to-{nodes}", nodes), 300).verdict)
            if nodes < 9:
                wait_until(lambda wanted=nodes: sum(n.is_alive for n in cluster.nodes()) == wanted, f"{nodes} nodes", 300)
                alive.append(sum(node.is_alive for node in cluster.nodes()))

    run_while(engine, ask)
    head = engine.recovery.head
    assert verdicts == [Verdict.REFUSED, Verdict.DONE, Verdict.DONE] and alive == [2, 3]
    assert_same(published(sink, head), undisturbed(tmp_path / "calm", head), "after nodes went and came")
    started = next(index for index, event in enumerate(events) if isinstance(event, EpochFinished))
    assert not any(isinstance(event, CatchUpFinished) for event in events[started:]), "a node that is given back is no failure"


def test_spark_ends_an_executor_without_replacing_it_and_starts_one_when_asked(
    arena: tuple[EmbeddedCluster, SparkRunner],
) -> None:
    """As on any master: a worker whose executor was released stays without, until more are wanted."""
    cluster, runner = arena
    before = cluster.wait_for(runner.spark, 3)
    scaler = SparkScaler(runner.context)
    leaving = NodeId(min(before))
    scaler.release([leaving])
    wait_until(lambda: leaving not in executor_ids(runner.spark), "the executor's end", 60)
    time.sleep(SETTLE_S)
    assert executor_ids(runner.spark) == before.keys() - {leaving}
    scaler.request(3)
    assert len(cluster.wait_for(runner.spark, 3)) == 3
