"""What the driver knows of nodes' files: nothing is removed that a job reads, and long outages cost no more than short ones."""

import time
from pathlib import Path

import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors.posts import posts
from resurge.connectors.sinks import MemorySink
from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.operators.aggregates import count, sum_
from resurge.operators.program import Program, compile_topology
from resurge.protocols.catch_up import next_step
from resurge.protocols.recovery import Facts, Phase, Standing
from resurge.runtime.driver.graphs import partition_graph
from resurge.runtime.driver.job_plans import JobFrame, PartitionWork, Slots, Work, job_plan
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
    versions.forget_nodes([OTHER])
    assert versions.expired()[NODE] == ["useless"]
    versions.abandoned(plan, [])
    assert versions.expired()[NODE] == ["buffer", "new", "old", "useless"]


def kept(versions: Versions, epoch: int) -> None:
    """One epoch in which the upper operator buffered its output for the lower one."""
    exchange = next(e.number for e in versions.program.exchanges if "totals" in e.consumers)
    tables = [(exchange, group, epoch, list(range(GROUPS))) for group in range(GROUPS)]
    reports = [SlotReport(0, 1, buffers=[BufferReport(NODE, 1, f"buffer-{epoch}", 100, tables)])]
    producers = {Partition("counts", KeyGroup(group)): (NODE, range(epoch, epoch + 1)) for group in range(GROUPS)}
    versions.buffer({exchange: list(range(GROUPS))}, reports, producers)


def outage(program: Program, epochs: int) -> tuple[Versions, Facts]:
    """The lower operator is behind by so many epochs, all of them buffered."""
    versions = Versions(program)
    for epoch in range(1, epochs + 1):
        kept(versions, epoch)
    graph = partition_graph(program)
    standing = {
        p: Standing(Phase.LIVE, NODE, epochs, epochs) if p.operator == "counts" else Standing(Phase.CATCHING_UP, OTHER, 0, 0)
        for p in graph.upstream
    }
    return versions, Facts(graph, standing, {NODE: 1.0, OTHER: 1.0}, head=epochs)


def decision_s(versions: Versions, facts: Facts) -> float:
    """How long it takes to decide on a step, to find its buffers, and to keep them within their limit."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(20):
            step = next_step(facts, versions.coverage(), {})
            assert step is not None
            assert not step.shadows
            found = versions.replays(step.buffered)
            versions.keep_buffers_within(10**9)
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
    versions, _ = outage(chain(), 5)
    left = min(5, limit_bytes // 100)
    assert versions.keep_buffers_within(limit_bytes) == 5 - left
    pair = (Partition("counts", KeyGroup(0)), Partition("totals", KeyGroup(1)))
    assert [epoch in versions.coverage()[pair] for epoch in range(1, 6)] == [False] * (5 - left) + [True] * left
    assert versions.keep_buffers_within(limit_bytes) == 0


def test_buffers_of_lost_nodes_do_not_count() -> None:
    """Nor do those before a global checkpoint."""
    versions, facts = outage(chain(), 3)
    versions.forget_nodes([NODE])
    assert not any(spans.spans for spans in versions.coverage().values())
    versions, facts = outage(chain(), 3)
    versions.drop_buffers()
    assert versions.coverage() == {}
    assert next_step(facts, versions.coverage(), {}) is not None
