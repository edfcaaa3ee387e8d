"""Nodes die and come back at random, in the middle of jobs, and no output changes. The real engine, without a JVM."""

import random
from pathlib import Path

import polars as pl
import pytest

from resurge.coordinator.input_log import entries
from resurge.coordinator.replay import replayed
from resurge.coordinator.scheduling import STRATEGIES
from resurge.errors import EngineError
from resurge.runtime.driver.runner import Member
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.telemetry import metrics
from resurge.telemetry.log import read_events
from resurge.testing.inline_runner import InlineRunner
from tests.properties.test_crash_points import assert_same
from tests.support import crash_job

EPOCHS = 6
KEPT_SEEDS: tuple[int, ...] = ()


class FailingRunner(InlineRunner):
    """Four nodes; before any task some may be killed, and killed ones are replaced after a while."""

    def __init__(self, seed: int, *, is_concurrent: bool) -> None:
        super().__init__(nodes={f"n{index}": Member() for index in range(4)})
        self.is_concurrent = is_concurrent
        self.jobs_aloft = self.most_aloft = 0
        self.rng = random.Random(seed)
        self.next_node = 4
        self.kills = 0
        self.before_task = self._strike

    def _strike(self, level: int, node: str) -> None:
        if self.kills < 6 and self.rng.random() < 0.04:
            victims = self.rng.sample(sorted(self._members), min(len(self._members), self.rng.choice((1, 1, 2, 3, 4))))
            self.kills += len(victims)
            self.kill(*victims)

    def run(self, plan: JobPlan) -> list[SlotReport]:
        self.jobs_aloft += 1
        self.most_aloft = max(self.most_aloft, self.jobs_aloft)
        try:
            return super().run(plan)
        finally:
            self.jobs_aloft -= 1

    def members(self) -> dict:
        if len(self._members) < 4 and self.rng.random() < 0.3:
            self.add(f"n{self.next_node}")
            self.next_node += 1
        return super().members()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """What the job shows when nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed")
    crash_job.write_input(folder, epochs=EPOCHS)
    crash_job.run(folder, InlineRunner(2))
    return crash_job.shown(folder)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", (*range(4), *KEPT_SEEDS))
def test_nodes_that_die_and_come_back_change_no_output(
    seed: int, strategy: str, tmp_path: Path, undisturbed: dict[str, pl.DataFrame]
) -> None:
    """Nothing lost and nothing repeated, whichever nodes die and whenever."""
    check(FailingRunner(seed, is_concurrent=False), tmp_path, strategy, undisturbed)


@pytest.mark.parametrize("seed", (*range(8), *KEPT_SEEDS))
def test_steps_that_run_beside_live_epochs_change_no_output(
    seed: int, tmp_path: Path, undisturbed: dict[str, pl.DataFrame]
) -> None:
    """The same where partitions catch up in a thread of their own; some are lost while their step is under way."""
    check(FailingRunner(seed, is_concurrent=True), tmp_path, STRATEGIES[seed % len(STRATEGIES)], undisturbed)


def test_steps_do_run_beside_live_epochs(tmp_path: Path, undisturbed: dict[str, pl.DataFrame]) -> None:
    """In one of some runs at least two jobs are under way at once; otherwise the runs above would show nothing."""
    for seed in range(12):
        runner = FailingRunner(seed, is_concurrent=True)
        check(runner, tmp_path / str(seed), "incremental", undisturbed)
        if runner.most_aloft > 1:
            return
    pytest.fail("no step ran while a live epoch did")


def check(runner: FailingRunner, folder: Path, strategy: str, undisturbed: dict[str, pl.DataFrame]) -> None:
    """Run the job on nodes that fail, and compare."""
    crash_job.write_input(folder, epochs=EPOCHS)
    crash_job.run(folder, runner, strategy=strategy)
    assert runner.kills
    found = crash_job.shown(folder)
    assert_same(found, undisturbed, strategy)
    told = metrics.query_rows(read_events(folder / "telemetry.jsonl"))
    assert told == {query: rows.height for query, rows in found.items()}, "telemetry counts other rows than the sink has"
    again = list(replayed(entries((folder / "telemetry.inputs").read_bytes())))
    assert not [step.difference for step in again if step.difference], "the inputs lead to other decisions when they are replayed"
    assert len(again) > EPOCHS


class UnluckyRunner(InlineRunner):
    """Spark fails at every fourth job, before it ran or after; or at all of them."""

    def __init__(self, *, always: bool = False) -> None:
        super().__init__(nodes={f"n{index}": Member() for index in range(3)})
        self.always = always
        self.jobs = 0

    def run(self, plan: JobPlan) -> list[SlotReport]:
        self.jobs += 1
        if self.always and self.jobs > 3:
            raise EngineError("Spark could not run the job")
        if self.jobs % 8 == 0:
            raise EngineError("Spark could not run the job")
        reports = super().run(plan)
        if self.jobs % 4 == 0:
            raise EngineError("Spark lost the job's result")
        return reports


def test_jobs_at_which_spark_fails_are_tried_again(tmp_path: Path, undisturbed: dict[str, pl.DataFrame]) -> None:
    """Whether the job had run or not, nothing is lost and nothing repeated."""
    crash_job.write_input(tmp_path, epochs=EPOCHS)
    runner = UnluckyRunner()
    crash_job.run(tmp_path, runner)
    assert runner.jobs > EPOCHS + 1
    assert_same(crash_job.shown(tmp_path), undisturbed, "incremental")


def test_spark_is_not_tried_for_ever(tmp_path: Path) -> None:
    """After three failures in a row the job ends with what Spark said."""
    crash_job.write_input(tmp_path, epochs=EPOCHS)
    runner = UnluckyRunner(always=True)
    with pytest.raises(EngineError, match="could not run"):
        crash_job.run(tmp_path, runner)
    assert runner.jobs >= 3 + 4
