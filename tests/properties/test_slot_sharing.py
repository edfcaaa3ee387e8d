"""Slots share the partitions of their node by key group or by operator: no output changes, whichever it is and whenever that changes."""

from pathlib import Path

import polars as pl
import pytest

from resurge.model.work import Job
from resurge.runtime.driver import slots
from resurge.runtime.driver.runner import Member
from resurge.runtime.driver.slot_sharing import SlotSharing
from resurge.runtime.driver.slots import Slots
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.testing.inline_runner import InlineRunner
from tests.properties.test_crash_points import assert_same
from tests.support import crash_job


class LosingRunner(InlineRunner):
    """Two nodes; one dies in some epoch, and another one comes."""

    def __init__(self, cores: int, lost_at: int | None) -> None:
        super().__init__(nodes={name: Member(cores) for name in ("n0", "n1")})
        self.cores, self.lost_at = cores, lost_at
        self.slots_of_first: dict[int, set[int]] = {}

    def run(self, plan: JobPlan) -> list[SlotReport]:
        if self.lost_at is not None and plan.epoch >= self.lost_at:
            self.lost_at = None
            self.kill("n1")
            self.add("n2", Member(self.cores))
        reports = super().run(plan)
        for report in reports:
            if any(0 in cohort.key_groups for cohort in report.cohorts):
                self.slots_of_first.setdefault(plan.epoch, set()).add(report.slot)
        return reports


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """What the job shows in one slot."""
    folder = tmp_path_factory.mktemp("expected")
    crash_job.write_input(folder)
    crash_job.run(folder, InlineRunner(1))
    return crash_job.shown(folder)


@pytest.mark.parametrize("lost_at", [None, 5])
@pytest.mark.parametrize("changes", [(1,), (1, 4), (1, 3, 6)], ids=str)
@pytest.mark.parametrize("cores", [2, 3])
def test_output_is_the_same_however_slots_share_operators(
    cores: int,
    changes: tuple[int, ...],
    lost_at: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expected: dict[str, pl.DataFrame],
) -> None:
    """By operator from the first change on, by key group from the next one; also if a node is lost meanwhile."""

    def chosen(sharing: SlotSharing, job: Job) -> Slots:
        before = sum(change <= max(job.epochs, default=0) for change in changes)
        return sharing._membership.slots(job.nodes, sharing._apart if before % 2 else slots.BY_KEY_GROUP)

    monkeypatch.setattr(slots, "LEAST_CHAINS_PER_SLOT", 1)
    monkeypatch.setattr(SlotSharing, "slots", chosen)
    crash_job.write_input(tmp_path)
    runner = LosingRunner(cores, lost_at)
    crash_job.run(tmp_path, runner)
    assert_same(crash_job.shown(tmp_path), expected, f"{cores} slots, {changes}, lost at {lost_at}")
    # By key group, the first one of all operators is in one slot of each node; by operator in several.
    used = {len(mine) for mine in runner.slots_of_first.values()}
    assert max(used) > 2 and (min(used) <= 2 or len(changes) == 1)
