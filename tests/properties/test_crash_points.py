"""A crash before or after any durable write loses nothing and repeats nothing."""

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from resurge.storage.durable import Faults
from resurge.testing.inline_runner import InlineRunner
from tests.support import crash_job
from tests.support.checkpoint_writing import writing

EPOCHS = 3
SHARES = 8
"""The gaps are shared out among this many tests, which can run side by side."""


class Crash(BaseException):
    """The process ends here; nothing after it runs."""


class CrashingFaults(Faults):
    """Crashes at the n-th gap between two durable writes, counted over the whole process."""

    def __init__(self, crash_at: int | None) -> None:
        super().__init__(crash_at)

    def _pass(self) -> None:
        self.passed += 1
        if self.passed == self.crash_at:
            raise Crash


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, crash_at: int | None) -> CrashingFaults:
    """Run the job, ending it abruptly at a gap."""
    faults = CrashingFaults(crash_at)
    monkeypatch.setattr(Faults, "from_environment", classmethod(lambda cls: faults))
    crash_job.run(folder, InlineRunner(2), checkpoint_interval=2)
    return faults


def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, pl.DataFrame], int]:
    """What an undisturbed run shows, and how many gaps it has."""
    folder = tmp_path / "undisturbed"
    crash_job.write_input(folder, epochs=EPOCHS)
    faults = run(folder, monkeypatch, None)
    return crash_job.shown(folder), faults.passed


def assert_same(found: dict[str, pl.DataFrame], wanted: dict[str, pl.DataFrame], what: str) -> None:
    """Row for row, query by query."""
    assert found.keys() == wanted.keys(), what
    for query, rows in wanted.items():
        try:
            assert_frame_equal(found[query], rows)
        except AssertionError as error:
            raise AssertionError(f"{what}: query {query!r} differs: {error}") from error


@pytest.mark.parametrize("share", range(SHARES))
def test_a_crash_in_any_gap_between_durable_writes_changes_no_output(
    share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever write is the last one before the crash, the resumed job shows exactly the undisturbed output.

    Even shares strike before each write, odd ones after each; so all gaps are passed with both ways to write checkpoints.
    """
    writing(monkeypatch, late=share % 2 == 1)
    wanted, gaps = expected(tmp_path, monkeypatch)
    assert gaps > 40
    for gap in range(1 + share, gaps + 1, SHARES):
        folder = tmp_path / f"gap-{gap}"
        crash_job.write_input(folder, epochs=EPOCHS)
        with pytest.raises(Crash):
            run(folder, monkeypatch, gap)
        run(folder, monkeypatch, None)
        assert_same(crash_job.shown(folder), wanted, f"crash in gap {gap}")


def test_two_crashes_one_after_another_change_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash while resuming from a crash is no different."""
    writing(monkeypatch, late=True)
    wanted, gaps = expected(tmp_path, monkeypatch)
    for first, second in zip(range(5, gaps, 11), range(3, gaps, 7), strict=False):
        folder = tmp_path / f"gaps-{first}-{second}"
        crash_job.write_input(folder, epochs=EPOCHS)
        for gap in (first, second):
            with pytest.raises(Crash):
                run(folder, monkeypatch, gap)
                raise Crash
        run(folder, monkeypatch, None)
        assert_same(crash_job.shown(folder), wanted, f"crashes in gaps {first} and {second}")
