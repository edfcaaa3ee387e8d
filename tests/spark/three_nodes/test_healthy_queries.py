"""Queries that have nothing on the nodes that die go on as if nothing had happened, while the others wait for new nodes."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from resurge.api.builder import TopologyBuilder
from resurge.connectors.posts import posts
from resurge.connectors.sinks import MemorySink
from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.model.topology import Topology
from resurge.operators.aggregates import count
from resurge.protocols.recovery import PartitionStatus, Phase
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.telemetry.events import CatchUpFinished, EpochFinished, Event, NodeLost, NodeNamed, QueriesChanged, RecoveryPlanned
from resurge.telemetry.log import TelemetryLog
from resurge.testing.fault_injection import Strike, Striker
from resurge.testing.inline_runner import InlineRunner
from tests.properties.test_crash_points import assert_same

NODES = 3
MOST_KILLED = 2
QUERIES = ("north", "east", "south")
POSTS_PER_EPOCH = 250
INTERVAL_S = 0.5
SETTLED_FROM = 5
KILL_AFTER = 9
REPLACED_AFTER = 18
EPOCHS = 21
# Next to nothing: once costs are measured no node has room, so what is lost waits until there are as many nodes as before.
HEADROOM = 1e-6


def pipelines(sinks: Mapping[str, MemorySink]) -> Topology:
    """Pipelines that share nothing: each has a source, windows, one partition and a query of its own."""
    job = TopologyBuilder("healthy", key_groups=1)
    for seed, (name, sink) in enumerate(sinks.items()):
        total = EPOCHS * POSTS_PER_EPOCH
        source = posts(total=total, seed=seed, splits=1, posts_per_epoch=POSTS_PER_EPOCH, zipf=1.1, distinct=2_000)
        tags = job.source(f"{name}-posts", source, event_time="time").flat_map(
            f"{name}-tags", pl.col("tags").alias("tag"), "time"
        )
        tags.window(name, "4s", "2s", key="tag", n=count()).query(sink=sink)
    return job.build()


def options(folder: Path) -> RunOptions:
    """Epochs have no limit of rows, so that they are cut the same every time."""
    return RunOptions(
        str(folder / "job"),
        interval_s=INTERVAL_S,
        checkpoint_interval=6,
        back_pressure=False,
        headroom=HEADROOM,
        local_root=str(folder),
    )


def shown(sinks: Mapping[str, MemorySink]) -> dict[str, pl.DataFrame]:
    """Every query's rows with their epochs."""
    return {name: sink.table(epoch=True) for name, sink in sinks.items()}


def undisturbed(folder: Path) -> dict[str, pl.DataFrame]:
    """What the queries show when nothing happens, without a pause between the epochs."""
    sinks = {name: MemorySink() for name in QUERIES}
    at_once = replace(options(folder), interval_s=0)
    run_until_done(Engine(pipelines(sinks), InlineRunner(NODES), at_once), until_idle=True, drain=True)
    return shown(sinks)


def partition_of(query: str) -> Partition:
    """The one partition of a query."""
    return Partition(query, KeyGroup(0))


def first_placement(events: Sequence[Event]) -> dict[str, NodeId]:
    """Where the planner put each query's partition at the start."""
    planned = next(event for event in events if isinstance(event, RecoveryPlanned))
    return {query: NodeId(planned.partitions[str(partition_of(query))]) for query in QUERIES}


def to_kill(placement: Mapping[str, NodeId]) -> list[NodeId]:
    """Nodes with partitions, as many as may be killed while at least one query has nothing on them."""
    used = sorted(set(placement.values()))
    return used[: min(MOST_KILLED, len(used) - 1)]


def latencies_s(events: Sequence[Event], query: str) -> list[float]:
    """A query's latency at the end of every epoch; an epoch that it did not show is an error."""
    return [event.latency_s[query] for event in events if isinstance(event, EpochFinished)]


def changes(events: Sequence[Event], query: str) -> list[str]:
    """How a query's partition went down and came back, from the first loss of a node on."""
    lost = next(index for index, event in enumerate(events) if isinstance(event, NodeLost))
    told = [event for event in events[lost:] if isinstance(event, QueriesChanged)]
    name = str(partition_of(query))
    return [what for event in told for what in ("down", "back") if name in getattr(event, what)]


def assert_untouched(query: str, events: Sequence[Event], stood: Mapping[int, Mapping[Partition, PartitionStatus]]) -> None:
    """Every epoch was shown in its turn; the partition never went down, moved, was restored or caught up with anything."""
    partition = partition_of(query)
    epochs = [event.epoch for event in events if isinstance(event, EpochFinished) and query in event.latency_s]
    assert epochs == list(range(1, EPOCHS + 2)), f"{query} did not show every epoch in order"
    assert changes(events, query) == [], f"{query} went down"
    assert sum(str(partition) in event.partitions for event in events if isinstance(event, RecoveryPlanned)) == 1
    assert not [event for event in events if isinstance(event, CatchUpFinished) and query in event.latencies_s]
    node = first_placement(events)[query]
    assert {(epoch, all_stood[partition]) for epoch, all_stood in stood.items()} == {
        (epoch, PartitionStatus(Phase.LIVE, node, epoch, epoch)) for epoch in epochs
    }, f"{query} was rolled back or moved"


def print_ratio(query: str, events: Sequence[Event]) -> None:
    """The median latency while nodes were missing against the one before, and the worst epoch: figures of a machine, not laws.

    The ratio is no like for like. Where nodes share cores, fewer of them with fewer queries are faster, and a job that has just
    started is slower, so it falls below 1. The median does not show the epoch that the kill struck, which is run again.
    """
    latencies = latencies_s(events, query)
    before = statistics.median(latencies[SETTLED_FROM - 1 : KILL_AFTER])
    missing = latencies[KILL_AFTER:REPLACED_AFTER]
    after = statistics.median(missing)
    print(
        f"{query}: median {before:.2f} s before, {after:.2f} s after, ratio {after / before:.2f}, worst after {max(missing):.2f} s"
    )


def test_queries_that_share_nothing_with_the_lost_nodes_lose_no_epoch(
    arena: tuple[EmbeddedCluster, SparkRunner], tmp_path: Path
) -> None:
    """They show every epoch in order and keep their state, while others are down for want of nodes and come back later."""
    sinks = {name: MemorySink() for name in QUERIES}
    events: list[Event] = []
    stood: dict[int, Mapping[Partition, PartitionStatus]] = {}
    telemetry = TelemetryLog()
    cluster, runner = arena
    engine = Engine(pipelines(sinks), runner, options(tmp_path / "struck"), telemetry)

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, EpochFinished):
            stood[event.epoch] = dict(engine.recovery.statuses)

    killed: list[str] = []

    def choose(alive: list[str], most: int) -> list[str]:
        names = cluster.executor_nodes(runner.spark)
        killed.extend(names[node] for node in to_kill(first_placement(events)))
        return killed

    striker = Striker(cluster, [Strike(KILL_AFTER, 0.1, MOST_KILLED)], choose)
    telemetry.listeners += [listen, striker.listen]
    engine.start()
    try:
        engine.run(REPLACED_AFTER)
        before_replacement = list(events)
        cluster.add(striker.kills)
        engine.run(EPOCHS - REPLACED_AFTER, drain=True)
    finally:
        striker.finish()
        engine.close("the test is over")

    placement = first_placement(events)
    healthy = [query for query in QUERIES if placement[query] not in to_kill(placement)]
    struck = [query for query in QUERIES if query not in healthy]
    assert {event.node for event in events if isinstance(event, NodeLost)} == set(to_kill(placement))
    names = {event.node: event.name for event in events if isinstance(event, NodeNamed)}
    assert sorted(names[node] for node in to_kill(placement)) == sorted(killed), "nodes are told by the names of the cluster"
    for query in struck:
        assert changes(before_replacement, query) == ["down"], f"{query} was to be down until nodes came"
        assert changes(events, query) == ["down", "back"]
    for query in healthy:
        assert_untouched(query, events, stood)
        print_ratio(query, events)
    assert_same(shown(sinks), undisturbed(tmp_path / "undisturbed"), "after two nodes were killed")
