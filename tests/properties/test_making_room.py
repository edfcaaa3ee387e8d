"""Live partitions move closer for one that fits nowhere, and no output changes. The real engine, without a JVM."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest

from resurge import MemorySink, TopologyBuilder, count, posts
from resurge.model.topology import Topology
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import Member
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.telemetry.events import Event, MoveEnded, MoveStarted, NodeLost, QueriesChanged
from resurge.telemetry.log import TelemetryLog
from resurge.testing.inline_runner import InlineRunner

INTERVAL_S = 5.0
"""No epoch takes longer, so that costs are what they are said to be; until the input ends, none is waited for."""
COSTS = {"large": 0.7, "small": 0.3, "other": 0.3}
"""Of a node that may spend 0.8: the large one fits beside none, and both small ones on one node."""
KILL_AT, EPOCHS = 12, 45


class PricedRunner(InlineRunner):
    """Three nodes, on which each operator costs what it is told to; one node dies for good."""

    def __init__(self, costs: Mapping[str, float], kill_at: int | None) -> None:
        super().__init__(nodes={f"n{index}": Member(1) for index in range(3)})
        self.costs, self.kill_at = costs, kill_at
        self.engine: Engine | None = None

    def run(self, plan: JobPlan) -> list[SlotReport]:
        if self.kill_at is not None and plan.epochs and plan.epoch >= self.kill_at and self.engine is not None:
            self.kill_at = None
            statuses = self.engine.recovery.statuses
            self.kill(*(str(known.node) for partition, known in statuses.items() if partition.operator == "large"))
        reports = super().run(plan)
        for report in reports:
            report.cpu_s = 0.0
            for cohort in report.cohorts:
                cohort.cpu_s = self.costs[cohort.operator] * INTERVAL_S * len(plan.epochs)
        return reports


def topology(sink: MemorySink) -> Topology:
    """Three counts, each of which is a query."""
    builder = TopologyBuilder("room", key_groups=1)
    source = builder.source("posts", posts(total=EPOCHS * 200, posts_per_epoch=200, seed=3), event_time="time")
    tags = source.flat_map("tags", lambda table: table.select("time", tag="tags").explode("tag"))
    for priority, name in enumerate(COSTS, start=1):
        tags.window(name, f"{5 + priority}s", "5s", key="tag", emit="final", n=count()).query(priority=priority, sink=sink)
    return builder.build()


def run(folder: Path, kill_at: int | None) -> tuple[MemorySink, list[Event]]:
    """Run to the end of the input; what was shown, and what telemetry told."""
    sink, told = MemorySink(), list[Event]()
    runner = PricedRunner(COSTS, kill_at)
    options = RunOptions(
        str(folder / "job"), interval_s=INTERVAL_S, checkpoint_interval=4, local_root=str(folder), correlated_from=1
    )
    with TelemetryLog() as telemetry:
        telemetry.listeners.append(told.append)
        runner.engine = Engine(topology(sink), runner, options, telemetry)
        run_until_done(runner.engine, until_idle=True, drain=True)
    return sink, told


def shown(sink: MemorySink) -> dict[str, pl.DataFrame]:
    """Each query's rows."""
    return {name: sink.table(name).sort(pl.all()) for name in COSTS}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """What the job shows when nothing is lost."""
    return shown(run(tmp_path_factory.mktemp("undisturbed"), None)[0])


def test_a_live_partition_makes_room_and_no_output_changes(tmp_path: Path, undisturbed: dict[str, pl.DataFrame]) -> None:
    """Two nodes are left with a small partition each; one of them moves to the other, and the large one comes back."""
    sink, told = run(tmp_path, KILL_AT)
    lost_s = next(event.at_s for event in told if isinstance(event, NodeLost))
    begun = next(event for event in told if isinstance(event, MoveStarted) and event.at_s > lost_s)
    ended = next(event for event in told if isinstance(event, MoveEnded) and event.at_s > lost_s)
    back_s = [event.at_s for event in told if isinstance(event, QueriesChanged) and event.back and event.at_s > lost_s]
    assert ended.moved == 1 and not ended.failure
    assert begun.at_s <= ended.at_s <= min(back_s)
    for name, table in shown(sink).items():
        assert table.equals(undisturbed[name]), name
