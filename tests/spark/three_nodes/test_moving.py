"""Key groups move on a real cluster while a job runs, a node is drained and goes, and no output changes."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl

from resurge.api.builder import TopologyBuilder
from resurge.connectors.posts import posts
from resurge.connectors.sinks import MemorySink
from resurge.model.names import NodeId
from resurge.model.requests import Answer, Ask, Drain, Move, Verdict
from resurge.model.topology import Topology
from resurge.operators.aggregates import count
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.storage.durable import DurableStore
from resurge.storage.requests import carried_out
from resurge.telemetry.events import CatchUpFinished, Event, MoveEnded, NodeLost
from resurge.telemetry.log import TelemetryLog
from resurge.testing.inline_runner import InlineRunner
from tests.properties.test_crash_points import assert_same
from tests.support.processes import wait_until

EPOCHS = 400
"""More than requests take on a busy machine; a job ends when its requests were carried out."""
POSTS_PER_EPOCH = 200


def topology(sink: MemorySink) -> Topology:
    """Windows, and a ranking below them at another level."""
    job = TopologyBuilder("moving", key_groups=4)
    source = posts(total=EPOCHS * POSTS_PER_EPOCH, splits=2, posts_per_epoch=POSTS_PER_EPOCH, zipf=1.1, distinct=500)
    tags = job.source("posts", source, event_time="time").flat_map("tags", pl.col("tags").alias("tag"), "time")
    counts = tags.window("counts", "4s", "2s", key="tag", n=count())
    counts.query(sink=sink)
    counts.top_k("top", 3, by="n", per="window_end", identity="tag", expire="window_end").query(sink=sink)
    return job.build()


def options(folder: Path) -> RunOptions:
    """Epochs have no limit of rows, so that they are cut the same every time."""
    return RunOptions(
        str(folder / "job"), interval_s=0.3, checkpoint_interval=8, back_pressure=False, balance="off", local_root=str(folder)
    )


def published(sink: MemorySink, epochs: int) -> dict[str, pl.DataFrame]:
    """What the first epochs published."""
    tables = {query: sink.table(query, epoch=True) for query in ("counts", "top")}
    return {query: table.filter(pl.col("epoch") <= epochs).sort(pl.all()) for query, table in tables.items()}


def undisturbed(folder: Path, epochs: int) -> dict[str, pl.DataFrame]:
    """What that many epochs publish when nothing happens, without a pause between them."""
    sink = MemorySink()
    run_until_done(Engine(topology(sink), InlineRunner(2), replace(options(folder), interval_s=0)), epochs=epochs)
    return published(sink, epochs)


def run_while(engine: Engine, ask: Callable[[], None]) -> None:
    """Run a job until another thread has asked for everything that it wants, from the first epochs on."""

    def asking() -> None:
        try:
            wait_until(lambda: engine.is_started and engine.recovery.head >= 3, "the first epochs", 300)
            ask()
        finally:
            engine.stop()

    thread = threading.Thread(target=asking, daemon=True)
    thread.start()
    run_until_done(engine)
    thread.join(60)


def test_moves_and_a_drain_on_a_real_cluster_change_no_output(
    arena: tuple[EmbeddedCluster, SparkRunner], names: list[str], tmp_path: Path
) -> None:
    """Shipments between executors, two ways to move, and a node that leaves without being missed."""
    sink, events = MemorySink(), list[Event]()
    answers: list[Answer] = []
    telemetry = TelemetryLog()
    telemetry.listeners.append(events.append)
    cluster, runner = arena
    drained, target, _ = names
    asks: tuple[Ask, ...] = (
        Move("first", "counts", NodeId(target), [0, 1, 2, 3]),
        Move("second", "top", NodeId(target), [0, 1], "direct"),
        Drain("third", NodeId(drained)),
    )
    engine = Engine(topology(sink), runner, options(tmp_path / "moved"), telemetry)

    def ask() -> None:
        store = DurableStore(engine.store.url)
        answers.extend(carried_out(store, engine.journal.generation, ask, 300) for ask in asks)
        cluster.kill(drained)

    run_while(engine, ask)
    assert [answer.verdict for answer in answers] == [Verdict.DONE] * 3, answers
    head = engine.recovery.head
    assert_same(published(sink, head), undisturbed(tmp_path / "calm", head), "after moves and a drain")
    moved = [event for event in events if isinstance(event, MoveEnded)]
    assert len(moved) >= 2 and all(not event.failure for event in moved)
    lost = [event for event in events if isinstance(event, NodeLost)]
    assert not lost or [event.partitions for event in lost] == [0]
    # What moved directly has caught up before.
    gone_at = events.index(lost[0]) if lost else len(events)
    assert not any(isinstance(event, CatchUpFinished) for event in events[gone_at:]), "a drained node that goes is no failure"
    for event in moved:
        print(
            f"{event.moved} partitions in {event.took_s:.2f} s, pause {event.pause_s * 1000:.1f} ms, {event.shipped_bytes} bytes"
        )
