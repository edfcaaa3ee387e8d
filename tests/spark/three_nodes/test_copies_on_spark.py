"""Copies of states on a real cluster: a move that begins with one, a node that is killed, and no output changes."""

from dataclasses import replace
from pathlib import Path

from resurge.connectors.sinks import MemorySink
from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.model.requests import CPA, CPAL, Answer, Move, Verdict
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.storage.durable import DurableStore
from resurge.storage.requests import carried_out
from resurge.telemetry.events import CopiesUsed, Event, MoveEnded, NodeLost
from resurge.telemetry.log import TelemetryLog
from tests.properties.test_crash_points import assert_same
from tests.spark.three_nodes.test_moving import options, published, run_while, topology, undisturbed
from tests.support.processes import wait_until

TOP = Partition("top", KeyGroup(0))


def test_a_killed_node_comes_back_from_copies_on_a_real_cluster(
    arena: tuple[EmbeddedCluster, SparkRunner], names: list[str], tmp_path: Path
) -> None:
    """Shipped between executors, used by a move, then by a recovery."""
    sink, events = MemorySink(), list[Event]()
    answers: list[Answer] = []
    telemetry = TelemetryLog()
    telemetry.listeners.append(events.append)
    cluster, runner = arena
    victim = names[1]
    engine = Engine(topology(sink), runner, replace(options(tmp_path / "copied"), copies=1, copies_every=2), telemetry)

    def disturb() -> None:
        wait_until(lambda: engine.recovery.checkpoint >= 8 and engine.state.copies, "copies", 300)
        store = DurableStore(engine.store.url)
        wait_until(lambda: any(partition == TOP for partition, _ in engine.state.copies), "a copy of top/0", 300)
        copied = next(node for partition, node in engine.state.copies if partition == TOP)
        for ask in (Move("first", "counts", NodeId(victim), [0, 1], CPAL), Move("second", "top", copied, [0], CPA)):
            answers.append(carried_out(store, engine.journal.generation, ask, 300))
        wait_until(lambda: len(engine.state.copies) == len(engine.recovery.statuses), "a copy of each partition", 300)
        cluster.kill(victim)
        wait_until(lambda: any(isinstance(event, CopiesUsed) for event in events), "a recovery from copies", 300)
        wait_until(lambda: engine.recovery.all_live, "the end of the recovery", 300)

    run_while(engine, disturb)
    assert [answer.verdict for answer in answers] == [Verdict.DONE] * 2, answers
    head = engine.recovery.head
    assert_same(published(sink, head), undisturbed(tmp_path / "calm", head), "after moves and a loss with copies")
    assert all(not event.failure for event in events if isinstance(event, MoveEnded))
    assert any(isinstance(event, NodeLost) for event in events)
    used = [event for event in events if isinstance(event, CopiesUsed)]
    assert used
    print(f"from copies: {[(len(event.partitions), event.from_checkpoints, event.epochs_saved) for event in used]}")
