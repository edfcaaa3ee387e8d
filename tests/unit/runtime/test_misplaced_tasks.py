"""Spark runs a task on another executor than it was sent to: tried again with pauses, then given up with a clear error."""

from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors.posts import posts
from resurge.connectors.sinks import MemorySink
from resurge.errors import EngineError
from resurge.model.topology import Topology
from resurge.operators.aggregates import count
from resurge.protocols import retrying
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.runtime.worker.tasks import MISPLACED
from resurge.testing.inline_runner import InlineRunner


class MisplacingRunner(InlineRunner):
    """Answers the first jobs as Spark does when it moves a task."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times
        self.attempts = 0

    def run(self, plan: JobPlan) -> list[SlotReport]:
        """Misplaced at first, then as usual."""
        self.attempts += 1
        if self.left:
            self.left -= 1
            return [SlotReport(0, 0, failure=(MISPLACED, "slot 0 belongs on executor 1, not on 2"))]
        return super().run(plan)


def counted(sink: MemorySink) -> Topology:
    """Posts per user."""
    job = TopologyBuilder("placed", key_groups=2)
    source = job.source("posts", posts(total=200, posts_per_epoch=100), event_time="time")
    source.window("busy", "10s", key="user", emit="final", n=count()).query(sink=sink)
    return job.build()


def run(runner: InlineRunner, sink: MemorySink, folder: Path) -> None:
    """To the end of the input."""
    options = RunOptions(str(folder / "job"), interval_s=0, local_root=str(folder))
    run_until_done(Engine(counted(sink), runner, options), until_idle=True, drain=True)


def test_tasks_that_are_always_misplaced_end_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit the same job would be tried for ever, as fast as Spark can."""
    monkeypatch.setattr(retrying, "FIRST_PAUSE_S", 0.001)
    runner = MisplacingRunner(10_000)
    with pytest.raises(EngineError, match=r"slot 0 belongs on executor 1, not on 2; .* spark\.locality\.wait"):
        run(runner, MemorySink(), tmp_path)
    assert runner.attempts == retrying.MOST_RETRIES + 1


def test_a_few_misplaced_tasks_cost_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it happens again later."""
    monkeypatch.setattr(retrying, "FIRST_PAUSE_S", 0.001)
    sink = MemorySink()
    run(MisplacingRunner(retrying.MOST_RETRIES), sink, tmp_path)
    assert sink.table().select(pl.col("n").sum()).item() == 200
