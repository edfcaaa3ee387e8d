"""The driver's own time per steady epoch, over partitions and slots: everything but Spark and the tasks."""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from resurge.api.builder import TopologyBuilder
from resurge.benchmarks.state import KeySource
from resurge.connectors.contracts import StagedPart
from resurge.connectors.sinks import DiscardSink
from resurge.errors import JobError
from resurge.model.names import NodeId
from resurge.model.topology import Topology
from resurge.operators.aggregates import count
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import Member
from resurge.runtime.driver.session import default_local_root
from resurge.runtime.worker.level import JobCode
from resurge.runtime.worker.messages import GROUPS, ROWS, CohortReport, CohortWork, JobPlan, Layout, SlotReport
from resurge.runtime.worker.partitions import shares
from resurge.runtime.worker.tasks import decode_reports
from resurge.storage import paths
from resurge.storage.runs import SavedCohort
from resurge.telemetry.events import Event

PARTITIONS = (100, 1_000, 10_000)
SLOTS = (4, 64, 256)
OPERATORS = 10
CORES_PER_NODE = 4
WARM_UP_EPOCHS = 3
EPOCHS = 25


class AbsentRunner:
    """Answers at once as tasks would that have one row for each key group; what it takes itself is not the driver's time."""

    master = "absent"
    is_concurrent = False
    has_costly_slots = False

    def __init__(self, slots: int) -> None:
        self._members = {NodeId(f"node-{index}"): Member(CORES_PER_NODE) for index in range(slots // CORES_PER_NODE)}
        self.tasks_s = 0.0
        self._layout_name, self._layout = "", b""

    def listen(self, progress: Callable[[Event], None]) -> None:
        """No events."""

    def members(self) -> dict[NodeId, Member]:
        """All nodes are up."""
        return dict(self._members)

    def install(self, job: str, code: JobCode) -> None:
        """Nobody runs the code."""

    def run(self, plan: JobPlan) -> list[SlotReport]:
        """The plan is encoded and the reports are decoded, as for Spark."""
        encoded = msgspec.msgpack.encode(plan.without_layout())
        if plan.layout is not None and plan.layout.name != self._layout_name:
            self._layout_name, self._layout = plan.layout.name, msgspec.msgpack.encode(plan.layout)
        began = time.perf_counter()
        layout = msgspec.msgpack.decode(self._layout, type=Layout) if plan.layout is not None else None
        sent = msgspec.msgpack.decode(encoded, type=JobPlan).with_layout(layout)
        answers = [msgspec.msgpack.encode(report) for report in _reports(sent)]
        self.tasks_s += time.perf_counter() - began
        return decode_reports(answers)

    def session(self) -> Any:
        """There is none."""
        raise JobError("the benchmark of the driver has no Spark session")

    def close(self) -> None:
        """Nothing was opened."""


def _reports(plan: JobPlan) -> list[SlotReport]:
    found = [SlotReport(slot, 0, rows_read=1, cpu_s=0.001) for slot in range(len(plan.slots))]
    for slot in range(len(plan.slots)):
        work = plan.of_slot(slot).slots[slot]
        name = paths.local_segment(plan.epoch, f"{plan.attempt}-1", slot)
        report = SlotReport(slot, 1, segment=name, segments=[name], cpu_s=0.001)
        report.cohorts = [_cohort_report(cohort, plan) for cohort in work.cohorts]
        if plan.checkpoint and work.cohorts:
            report.written[name] = [SavedCohort(cohort.operator, cohort.key_groups, {}) for cohort in work.cohorts]
        report.parts = [
            StagedPart(cohort.operator, plan.epoch, f"{plan.attempt}-0-1-{slot:05d}", 1, key_groups=tuple(cohort.key_groups))
            for cohort in work.cohorts
            if plan.epochs
        ]
        found.append(report)
    return found


def _cohort_report(cohort: CohortWork, plan: JobPlan) -> CohortReport:
    groups = cohort.key_groups
    ones = np.ones(len(groups), dtype=np.int64)
    return CohortReport(
        cohort.operator,
        np.asarray(groups).astype(GROUPS).tobytes(),
        False,
        plan.epoch,
        shares(ones, ones),
        ones.astype(ROWS).tobytes(),
        len(groups),
        100,
        0,
        0.001,
    )


def counting(partitions: int) -> Topology:
    """Counts by the same key, over and over: so many partitions in all."""
    job = TopologyBuilder("driver", key_groups=partitions // OPERATORS)
    keys = job.source("keys", KeySource(1, 2))
    for index in range(OPERATORS):
        keys.aggregate(f"counts-{index}", key="key", n=count()).query(sink=DiscardSink())
    return job.build()


def epochs_ms(partitions: int, slots: int) -> list[float]:
    """Milliseconds of the driver's own for each of some epochs."""
    runner, took = AbsentRunner(slots), []
    with tempfile.TemporaryDirectory(prefix="resurge-bench-", dir=default_local_root()) as folder:
        options = RunOptions(f"{folder}/job", interval_s=0, back_pressure=False, local_root=folder)
        engine = Engine(counting(partitions), runner, options)
        engine.start()
        for _ in range(WARM_UP_EPOCHS + EPOCHS):
            runner.tasks_s, began = 0.0, time.perf_counter()
            engine.step()
            took.append((time.perf_counter() - began - runner.tasks_s) * 1000)
        engine.close("measured")
    return took[WARM_UP_EPOCHS:]


def measure(partitions: Sequence[int], slots: Sequence[int], progress: Callable[[str], None]) -> dict[str, Any]:
    """The median epoch for each number of partitions and slots; and the mean, with the checkpoints that every tenth one makes."""
    results = []
    for many in partitions:
        for count_of_slots in slots:
            progress(f"{many:,} partitions, {count_of_slots} slots")
            took = epochs_ms(many, count_of_slots)
            figures = {"driver_ms": statistics.median(took), "mean_ms": statistics.fmean(took)}
            measured = {name: round(value, 2) for name, value in figures.items()}
            results.append({"partitions": many, "slots": count_of_slots, **measured})
    return {"results": results}
