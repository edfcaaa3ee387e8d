"""Checkpoints that do not wait for what is down: crashes between any two of their durable writes change no output."""

import contextlib
from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors.sinks import MemorySink
from resurge.errors import JobError
from resurge.model.names import NodeId
from resurge.model.topology import Topology
from resurge.operators.aggregates import count, sum_
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import Member
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.storage.durable import DurableStore, Faults
from resurge.storage.journal import CheckpointPublished, EpochCommitted, Journal
from resurge.storage.stored_job import open_job
from resurge.testing.inline_runner import InlineRunner
from tests.properties.test_crash_points import Crash, CrashingFaults
from tests.support.engines import assert_same_output
from tests.support.scripted import scripted

EPOCHS = 6
MANY_EPOCHS = 20
SHARES = 4
MOST_LOOKS = 10
LOST_AT_EPOCH, BACK_AT_EPOCH = 2, 4
ROWS = [
    [pl.DataFrame({"who": list("abcdefgh"), "n": [epoch * part for part in range(8)]})] for epoch in range(1, MANY_EPOCHS + 1)
]


class AwayRunner(InlineRunner):
    """Three nodes, of which one is away from one epoch to another, or until the driver dies; `blocking` waits for it."""

    def __init__(self, *, is_crashing: bool = False) -> None:
        super().__init__(nodes={name: Member() for name in ("n0", "n1", "n2")})
        self.is_crashing = is_crashing
        self.looks = 0
        self.faults = CrashingFaults(None)
        self.lost_at_gap = 0

    def members(self) -> dict[NodeId, Member]:
        """The nodes that are there; a driver that has nothing left to do but to wait gets the node back."""
        self.looks = self.looks + 1 if len(self._members) == 2 and not self.is_crashing else 0
        if self.looks > MOST_LOOKS:
            self.add("n3")
        return super().members()

    def run(self, plan: JobPlan) -> list[SlotReport]:
        self.looks = 0
        newest = max((work.epoch for work in plan.epochs), default=0)
        if newest == LOST_AT_EPOCH and "n2" in self._members:
            self.kill("n2")
            self.lost_at_gap = self.faults.passed
        if newest == BACK_AT_EPOCH and self.is_crashing:
            raise Crash
        if newest == BACK_AT_EPOCH and "n2" not in self._members:
            self.add("n3")
        return super().run(plan)


class Job:
    """A running total per key, and how many keys have each parity of it: what follows it stalls when it is down."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, epochs: int = EPOCHS) -> None:
        self.folder, self.monkeypatch, self.epochs = folder, monkeypatch, epochs
        self.sink = MemorySink()

    def topology(self) -> Topology:
        job = TopologyBuilder("job", key_groups=3)
        totals = job.source("rows", scripted(ROWS[: self.epochs])).aggregate("totals", key="who", total=sum_("n"))
        parity = totals.map("parity", (pl.col("total") % 2).alias("parity")).aggregate("parities", key="parity", n=count())
        totals.query("totals", sink=self.sink)
        parity.query("parities", sink=self.sink)
        return job.build()

    def run(self, runner: InlineRunner, crash_at: int | None = None, most_epochs_kept: int | None = None) -> int:
        """Run the job, ending it abruptly at a gap between two durable writes; how many were passed."""
        faults = CrashingFaults(crash_at)
        if isinstance(runner, AwayRunner):
            runner.faults = faults
        self.monkeypatch.setattr(Faults, "from_environment", classmethod(lambda cls: faults))
        options = RunOptions(
            str(self.folder / "job"),
            interval_s=0,
            checkpoint_interval=1,
            local_root=str(self.folder),
            strategy="blocking",
            most_epochs_kept=most_epochs_kept,
        )
        run_until_done(Engine(self.topology(), runner, options), until_idle=True)
        return faults.passed

    def shown(self) -> dict[str, pl.DataFrame]:
        """Each query's rows with their epochs."""
        return {query: self.sink.table(query, epoch=True).sort(pl.all()) for query in ("totals", "parities")}

    def partial(self) -> list[CheckpointPublished]:
        """The checkpoints in the journal that lack partitions."""
        records = Journal(DurableStore(str(self.folder / "job"))).read()
        return [record for record in records if isinstance(record, CheckpointPublished) and record.absent]


def undisturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int = EPOCHS) -> dict[str, pl.DataFrame]:
    """What the job shows when nothing happens."""
    job = Job(tmp_path / "undisturbed", monkeypatch, epochs)
    job.run(InlineRunner(2))
    return job.shown()


def test_checkpoints_go_on_while_a_node_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next driver begins from several; a commit says who is absent only when that has changed."""
    wanted = undisturbed(tmp_path, monkeypatch)
    job = Job(tmp_path / "away", monkeypatch)
    with pytest.raises(Crash):
        job.run(AwayRunner(is_crashing=True))
    assert len({record.epoch for record in job.partial()}) >= 2
    records = Journal(DurableStore(str(job.folder / "job"))).read()
    assert any(isinstance(record, EpochCommitted) and record.absent is None for record in records)
    stored = open_job(str(job.folder / "job"))
    assert set(stored.absent) == {LOST_AT_EPOCH - 1}
    assert set(stored.problems().values()) == {None}
    manifest, problems = stored.newest_checkpoint()
    assert manifest is not None and not problems
    assert sum(len(cohort.key_groups) for cohort in manifest.cohorts) == 6
    job.run(InlineRunner(2))
    assert_same_output(job.shown(), wanted)


def test_what_was_kept_for_the_absent_is_dropped_when_they_are_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two checkpoints with everybody are left, as ever, once they have been back for long enough for two."""
    job = Job(tmp_path / "back", monkeypatch, MANY_EPOCHS)
    job.run(AwayRunner())
    assert_same_output(job.shown(), undisturbed(tmp_path, monkeypatch, MANY_EPOCHS))
    assert not job.partial()
    assert len(list((job.folder / "job" / "checkpoints").glob("*.json"))) == 2
    assert not open_job(str(job.folder / "job")).absent


def test_a_job_ends_and_says_why_when_more_is_kept_for_the_absent_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nodes for all of them the next run goes on, whatever is kept."""
    job = Job(tmp_path / "limited", monkeypatch)
    with pytest.raises(JobError, match=r"4 partitions are down \(totals/2, .*\), and the input of 2 epochs is kept for them"):
        job.run(AwayRunner(is_crashing=True), most_epochs_kept=1)
    job.run(InlineRunner(2), most_epochs_kept=1)
    assert_same_output(job.shown(), undisturbed(tmp_path, monkeypatch))


@pytest.mark.parametrize("share", range(SHARES))
def test_a_crash_between_durable_writes_of_partial_checkpoints_changes_no_output(
    share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever write is the last one before the crash, with the node away or back for the next driver."""
    wanted = undisturbed(tmp_path, monkeypatch)
    whole = AwayRunner()
    gaps = Job(tmp_path / "whole", monkeypatch).run(whole)
    assert gaps - whole.lost_at_gap > 40
    for gap in range(whole.lost_at_gap + share, gaps + 1, SHARES):
        job = Job(tmp_path / f"gap-{gap}", monkeypatch)
        # How the lost partitions catch up depends on time, so that a run may be over before the last gap of another.
        with contextlib.suppress(Crash):
            job.run(AwayRunner(), gap)
        job.run(AwayRunner() if gap % 3 else InlineRunner(2))
        assert_same_output(job.shown(), wanted, f"crash in gap {gap}")


def test_a_damaged_file_of_an_older_checkpoint_sends_only_its_partitions_farther_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of those that were away is refused; all others go on from the newest one."""
    wanted = undisturbed(tmp_path, monkeypatch)
    job = Job(tmp_path / "damaged", monkeypatch)
    with pytest.raises(Crash):
        job.run(AwayRunner(is_crashing=True))
    (epoch,) = open_job(str(job.folder / "job")).absent
    for path in (job.folder / "job" / "checkpoints" / "data").glob(f"{epoch:012d}-*.runs"):
        path.write_bytes(path.read_bytes()[:-40])
    job.run(InlineRunner(2))
    assert_same_output(job.shown(), wanted)
