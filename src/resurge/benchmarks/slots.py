"""What a job costs that has nothing to do, over the number of slots: calls into the JVM, and time."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from resurge.api.builder import TopologyBuilder
from resurge.connectors.posts import posts
from resurge.connectors.sinks import DiscardSink
from resurge.model.names import NodeId
from resurge.operators.aggregates import count
from resurge.operators.program import compile_topology
from resurge.runtime.driver.job_plans import JobFrame, PartitionWork, Work, job_plan
from resurge.runtime.driver.session import open_session
from resurge.runtime.driver.slots import Slots
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.worker.level import JobCode
from resurge.runtime.worker.messages import EpochWork
from resurge.runtime.worker.tasks import IN_PROCESS_NODE

KEY_GROUPS_PER_SLOT = 4
JOBS = 5


def measure(slots: Sequence[int], cores: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """For each number of slots: the calls of the first job on a new set of nodes and of the later ones, and what they take."""
    spark = open_session(f"local[{cores}]", "resurge bench slots")
    try:
        runner = SparkRunner(spark)
        return {"results": [_measured(runner, number, progress) for number in slots]}
    finally:
        spark.stop()


def _measured(runner: SparkRunner, slots: int, progress: Callable[[str], None]) -> dict[str, Any]:
    progress(f"{slots} slots")
    groups = slots * KEY_GROUPS_PER_SLOT
    topology = TopologyBuilder("slots", key_groups=groups)
    source = topology.source("posts", posts(total=1, posts_per_epoch=1), event_time="time")
    source.window("counts", "10s", key="user", n=count()).query(sink=DiscardSink())
    program = compile_topology(topology.build())
    runner.install(f"slots-{slots}", JobCode(program, {}, {}))
    work = [PartitionWork("counts", group) for group in range(groups)]
    node = NodeId(IN_PROCESS_NODE)
    calls, seconds, planning = [], [], []
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
        frame = JobFrame(program, f"slots-{slots}", folder, folder)
        for attempt in range(JOBS):
            began = time.perf_counter()
            chosen = Work(1, [EpochWork(1, {})], [], {node: work}, {}, {})
            plan = job_plan(frame, Slots((node,) * slots, {}), chosen, f"{attempt}", {})
            planning.append(time.perf_counter() - began)
            with counted_calls() as count_of:
                began = time.perf_counter()
                runner.run(plan)
                seconds.append(time.perf_counter() - began)
            calls.append(count_of())
    return {
        "slots": slots,
        "calls_for_new_nodes": calls[0],
        "calls_per_job": min(calls[1:]),
        "plan_ms": 1000 * statistics.median(planning),
        "job_ms": 1000 * statistics.median(seconds[1:]),
        "task_ms": 1000 * statistics.median(seconds[1:]) / (slots * program.levels),
    }


@contextmanager
def counted_calls() -> Iterator[Callable[[], int]]:
    """Count the calls from Python into the JVM; those that only release objects are not counted."""
    from py4j.java_gateway import GatewayClient

    found = 0
    send = GatewayClient.send_command

    def counting(client: Any, command: str, *arguments: Any, **options: Any) -> Any:
        nonlocal found
        found += not command.startswith("m\n")
        return send(client, command, *arguments, **options)

    GatewayClient.send_command = counting
    try:
        yield lambda: found
    finally:
        GatewayClient.send_command = send
