"""Checkpoints that do not wait for what is down: crashes between any two of their durable writes change no output."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.cli.status import status_of
from resurge.connectors.sinks import MemorySink
from resurge.errors import JobError
from resurge.model.gaps import Gap
from resurge.model.names import NodeId
from resurge.model.topology import Topology
from resurge.operators.aggregates import count, sum_
from resurge.operators.hashing import hash_rows, key_groups_of
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import Member
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.storage.durable import DurableStore, Faults
from resurge.storage.journal import CheckpointPublished, EpochCommitted, Journal
from resurge.storage.stored_job import open_job
from resurge.telemetry.events import Event, PartitionsGivenUp
from resurge.telemetry.log import TelemetryLog
from resurge.testing.inline_runner import InlineRunner
from tests.properties.test_crash_points import Crash, CrashingFaults
from tests.support.checkpoint_writing import writing
from tests.support.engines import assert_same_output
from tests.support.scripted import scripted

EPOCHS = 9
MANY_EPOCHS = 20
SHARES = 4
MOST_LOOKS = 10
LOST_AT_EPOCH, BACK_AT_EPOCH = 3, 7
"""A checkpoint is logged with the epoch after the one that takes it."""
KEY_GROUPS = 3
ROWS = [
    [pl.DataFrame({"who": list("abcdefgh"), "n": [epoch * part for part in range(8)]})] for epoch in range(1, MANY_EPOCHS + 1)
]


class AwayRunner(InlineRunner):
    """Three nodes, of which one is away from one epoch to another, or until the driver dies; `blocking` waits for it."""

    def __init__(self, *, is_crashing: bool = False, lost_at_epoch: int = LOST_AT_EPOCH) -> None:
        super().__init__(nodes={name: Member() for name in ("n0", "n1", "n2")})
        self.is_crashing, self.lost_at_epoch = is_crashing, lost_at_epoch
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
        if newest == self.lost_at_epoch and "n2" in self._members:
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
        writing(monkeypatch, late=False)
        self.sink = MemorySink()
        self.events: list[Event] = []
        self.on_event: Callable[[Event], None] = self.events.append

    def topology(self) -> Topology:
        job = TopologyBuilder("job", key_groups=KEY_GROUPS)
        totals = job.source("rows", scripted(ROWS[: self.epochs])).aggregate("totals", key="who", total=sum_("n"))
        parity = totals.map("parity", (pl.col("total") % 2).alias("parity")).aggregate("parities", key="parity", n=count())
        totals.query("totals", sink=self.sink)
        parity.query("parities", sink=self.sink)
        return job.build()

    def run(
        self, runner: InlineRunner, crash_at: int | None = None, most_epochs_kept: int | None = None, beyond: str = "stop"
    ) -> int:
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
            when_too_far_behind=beyond,
        )
        telemetry = TelemetryLog()
        telemetry.listeners.append(self.on_event)
        run_until_done(Engine(self.topology(), runner, options, telemetry), until_idle=True)
        return faults.passed

    def shown(self) -> dict[str, pl.DataFrame]:
        """Each query's rows with their epochs."""
        return {query: self.sink.table(query, epoch=True).sort(pl.all()) for query in ("totals", "parities")}

    def gaps(self) -> dict[str, Gap]:
        """What partitions have skipped, as the newest checkpoint has it."""
        manifest, problems = open_job(str(self.folder / "job")).newest_checkpoint()
        assert manifest is not None and not problems
        return manifest.gaps

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
    assert set(stored.absent) == {LOST_AT_EPOCH - 2}
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


def assert_lacks_its_gaps_only(job: Job, wanted: dict[str, pl.DataFrame], what: str = "") -> None:
    """Totals of other partitions are those of a run without losses; those of given-up ones go on without what they skipped."""
    gaps, shown = job.gaps(), job.shown()
    for who in "abcdefgh":
        (group,) = key_groups_of(hash_rows(pl.DataFrame({"who": [who]}), ["who"]), KEY_GROUPS)
        gap = gaps.get(f"totals/{group}")
        totals = dict(shown["totals"].filter(pl.col("who") == who).select("epoch", "total").iter_rows())
        assert len(totals) == shown["totals"].filter(pl.col("who") == who).height, f"{what}: repeated output of {who}"
        skipped = range(0) if gap is None else range(gap.first, gap.last + 1)
        part = "abcdefgh".index(who)
        for epoch, total in wanted["totals"].filter(pl.col("who") == who).select("epoch", "total").iter_rows():
            if epoch in skipped:
                assert totals.get(epoch, total) == total, f"{what}: {who} in epoch {epoch}"
            else:
                lacks = sum(each * part for each in skipped if each < epoch)
                assert totals[epoch] == total - lacks, f"{what}: {who} in epoch {epoch}, with {gap}"


def test_partitions_that_are_too_far_behind_are_given_up_with_a_counted_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go on from their last checkpoint; telemetry and every later checkpoint say what they skipped; nothing else changes."""
    wanted = undisturbed(tmp_path, monkeypatch, MANY_EPOCHS)
    job = Job(tmp_path / "given-up", monkeypatch, MANY_EPOCHS)
    job.run(AwayRunner(), most_epochs_kept=1, beyond="give-up")
    gaps = job.gaps()
    events = [event for event in job.events if isinstance(event, PartitionsGivenUp)]
    assert gaps and {name for event in events for name in event.partitions} == gaps.keys()
    assert {gap.first for gap in gaps.values()} == {LOST_AT_EPOCH - 1}
    assert all(gap.rows == 8 * gap.epochs == 8 * (gap.last - gap.first + 1) for gap in gaps.values())
    assert_lacks_its_gaps_only(job, wanted)
    assert not job.partial()
    status = status_of(open_job(str(job.folder / "job")), 0.0, check=True)
    assert status["gaps"].keys() == gaps.keys() and set(status["checkpoints"].values()) == {None}


def test_a_job_gives_up_what_never_had_a_checkpoint_with_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost in the first epoch, they go on as if the job began where the gap ends."""
    wanted = undisturbed(tmp_path, monkeypatch)
    job = Job(tmp_path / "given-up", monkeypatch)
    job.run(AwayRunner(lost_at_epoch=1), most_epochs_kept=1, beyond="give-up")
    assert {gap.first for gap in job.gaps().values()} == {1}
    assert_lacks_its_gaps_only(job, wanted)


def test_a_restarted_driver_remembers_what_was_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It neither gives up the same epochs again nor forgets that they are missing."""
    wanted = undisturbed(tmp_path, monkeypatch)
    job = Job(tmp_path / "given-up", monkeypatch)
    with pytest.raises(Crash):
        job.run(AwayRunner(is_crashing=True), most_epochs_kept=1, beyond="give-up")
    gaps = job.gaps()
    assert gaps
    job.run(InlineRunner(2), most_epochs_kept=1, beyond="give-up")
    assert job.gaps() == gaps
    assert_lacks_its_gaps_only(job, wanted)


@pytest.mark.parametrize("share", range(SHARES))
def test_a_crash_between_the_durable_writes_of_giving_up_changes_nothing_else(
    share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever write is the last one before the crash: what is missing is what the newest checkpoint says, and no more."""
    wanted = undisturbed(tmp_path, monkeypatch)
    whole = Job(tmp_path / "whole", monkeypatch)
    runner, given_up_at = AwayRunner(), list[int]()
    whole.on_event = lambda event: given_up_at.append(runner.faults.passed) if isinstance(event, PartitionsGivenUp) else None
    whole.run(runner, most_epochs_kept=1, beyond="give-up")
    declared = 0
    for gap in range(given_up_at[0] - 8 + share, given_up_at[0] + 24, SHARES):
        job = Job(tmp_path / f"gap-{gap}", monkeypatch)
        with contextlib.suppress(Crash):
            job.run(AwayRunner(), gap, most_epochs_kept=1, beyond="give-up")
        job.run(AwayRunner() if gap % 3 else InlineRunner(2), most_epochs_kept=1, beyond="give-up")
        assert_lacks_its_gaps_only(job, wanted, f"crash in gap {gap}")
        declared += bool(job.gaps())
    assert declared


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
