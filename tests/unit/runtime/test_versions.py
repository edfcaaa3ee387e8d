"""What the driver knows of nodes' files: nothing is removed that a job reads, and long outages cost no more than short ones."""

import time
from pathlib import Path

import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors.posts import posts
from resurge.connectors.sinks import MemorySink
from resurge.coordinator.buffers import Buffers
from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.model.work import LAST_EPOCH, Job, Replica, Task
from resurge.operators.aggregates import count, sum_
from resurge.operators.program import Program, compile_topology
from resurge.protocols.catch_up import next_step
from resurge.protocols.epoch_sets import EpochSet
from resurge.protocols.recovery import PartitionStatus, Phase, RecoveryState
from resurge.runtime.driver.graphs import partition_graph
from resurge.runtime.driver.job_plans import JobFrame, PartitionWork, Work, job_plan
from resurge.runtime.driver.slots import Slots
from resurge.runtime.driver.versions import Version, Versions
from resurge.runtime.worker.messages import BufferReport, EpochWork, Replay, SlotReport

GROUPS = 4
NODE, OTHER = NodeId("n1"), NodeId("n2")


def chain() -> Program:
    """Two keyed operators, one below the other."""
    job = TopologyBuilder("versions", key_groups=GROUPS)
    source = job.source("posts", posts(total=10, posts_per_epoch=10), event_time="time")
    counts = source.aggregate("counts", key="user", n=count())
    counts.aggregate("totals", key="n", total=sum_("n")).query(sink=MemorySink())
    return compile_topology(job.build())


def test_files_that_a_running_job_reads_are_kept_when_they_are_forgotten(tmp_path: Path) -> None:
    """A node is lost elsewhere, so that shadows begin anew; but a step that was begun before still reads their segments."""
    program = chain()
    versions = Versions(program)
    shadow = Partition("counts", KeyGroup(0))
    versions.shadows[shadow] = Version("new", ("new", "old"), 7, NODE)
    versions.files[NODE] = {"new", "old", "buffer", "useless"}
    work = PartitionWork("counts", 0, "new", 7, 9, shadow=True)
    chosen = Work(9, [EpochWork(8, {})], [], {NODE: [work]}, {NODE: [Replay(1, "buffer", {})]}, {})
    plan = job_plan(JobFrame(program, "job", str(tmp_path), ""), Slots((NODE,), {}), chosen, "attempt", {})
    versions.pin(plan)
    versions.keep_only([], [], [NODE])
    assert versions.expired()[NODE] == ["useless"]
    versions.abandoned(plan, [])
    assert versions.expired()[NODE] == ["buffer", "new", "old", "useless"]


def exchange_of(program: Program) -> int:
    """The exchange from the upper to the lower operator."""
    return next(exchange.number for exchange in program.exchanges if "totals" in exchange.consumers)


def outage(program: Program, epochs: int) -> tuple[Versions, Buffers, RecoveryState]:
    """The lower operator is behind by so many epochs, all of them buffered."""
    versions, buffers, graph = Versions(program), Buffers(), partition_graph(program)
    counts = [partition for partition in graph.upstream if partition.operator == "counts"]
    totals = tuple(partition for partition in graph.upstream if partition.operator == "totals")
    for epoch in range(1, epochs + 1):
        tables = [(exchange_of(program), group, epoch, list(range(GROUPS))) for group in range(GROUPS)]
        versions.buffer(str(epoch), [SlotReport(0, 1, buffers=[BufferReport(NODE, 1, f"buffer-{epoch}", 100, tables)])])
        tasks = tuple(Task(Replica(partition, NODE, epoch - 1)) for partition in counts)
        buffers = buffers.keep(Job(str(epoch), (epoch,), tasks, frozenset((NODE,)), epoch, buffered_for=totals), {NODE: 100})
    statuses = {
        p: PartitionStatus(Phase.LIVE, NODE, epochs, epochs) if p in counts else PartitionStatus(Phase.CATCHING_UP, OTHER, 0, 0)
        for p in graph.upstream
    }
    return versions, buffers, RecoveryState(graph, statuses, {NODE: 1.0, OTHER: 1.0}, head=epochs)


def decision_s(versions: Versions, buffers: Buffers, recovery: RecoveryState) -> float:
    """How long it takes to decide on a step and to find its buffers."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(20):
            step = next_step(recovery, buffers.coverage(recovery.graph.upstream), {})
            assert step is not None
            assert not step.shadows
            found = versions.replays(step.buffered)
        best = min(best, time.perf_counter() - began)
    assert [replay.file for replay in found[NODE]] == [f"buffer-{epoch}" for epoch in range(16, 0, -1)]
    return best


def test_a_decision_after_a_long_outage_takes_as_long_as_after_a_short_one() -> None:
    """Four thousand epochs against two hundred: every pair of partitions has one span of epochs either way."""
    program = chain()
    short, long = (decision_s(*outage(program, epochs)) for epochs in (200, 4_000))
    print(f"20 decisions: {short * 1000:.1f} ms after 200 epochs, {long * 1000:.1f} ms after 4,000")
    assert long < 8 * short


@pytest.mark.parametrize("limit_bytes", [0, 250, 10_000])
def test_buffers_beyond_the_limit_do_not_count(limit_bytes: int) -> None:
    """The oldest are given up first, and coverage says what is left."""
    versions, buffers, recovery = outage(chain(), 5)
    left = min(5, limit_bytes // 100)
    dropped = buffers.excess(limit_bytes, ())
    assert len(dropped) == 5 - left
    buffers = buffers.without(dropped)
    pair = (Partition("counts", KeyGroup(0)), Partition("totals", KeyGroup(1)))
    covered = buffers.coverage(recovery.graph.upstream).get(pair, EpochSet())
    assert [epoch in covered for epoch in range(1, 6)] == [False] * (5 - left) + [True] * left
    assert not buffers.excess(limit_bytes, ())
    for buffered in dropped:
        versions.drop_buffers_of(buffered.attempt, buffered.node)
    found = versions.replays({pair: range(1, 6)}).get(NODE, [])
    assert [replay.file for replay in found] == [f"buffer-{epoch}" for epoch in range(5, 5 - left, -1)]


def test_buffers_of_lost_nodes_do_not_count() -> None:
    """Nor do those before a global checkpoint."""
    versions, buffers, recovery = outage(chain(), 3)
    pair = (Partition("counts", KeyGroup(0)), Partition("totals", KeyGroup(1)))
    assert buffers.without_nodes([NODE]).coverage(recovery.graph.upstream) == {}
    assert versions.replays({pair: range(1, 4)})
    versions.keep_only([], [], [OTHER])
    assert not versions.replays({pair: range(1, 4)})
    versions, _, recovery = outage(chain(), 3)
    versions.drop_buffers(LAST_EPOCH)
    assert not versions.replays({pair: range(1, 4)})
    assert next_step(recovery, {}, {}) is not None
