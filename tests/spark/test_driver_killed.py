"""The driver of a real Spark job is killed with kill -9 at random moments, and started again, and killed again."""

import random
import time
from pathlib import Path

import pytest

from resurge.testing.inline_runner import InlineRunner
from tests.properties.test_crash_points import assert_same
from tests.support import crash_job
from tests.support.processes import kill_group, process, wait_until

MASTER = "local[2]"
EVENTS_PER_DRIVER = 8


def lines(path: Path) -> int:
    """How many events have been logged."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_drivers_killed_at_random_moments_leave_the_output_of_an_undisturbed_run(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """One driver after another goes on where the one before was killed; nothing is lost and nothing repeated."""
    kills = request.config.getoption("--crash-seeds")
    wanted, folder = tmp_path / "undisturbed", tmp_path / "killed"
    # Enough that the last one too is killed at work.
    for each in (wanted, folder):
        crash_job.write_input(each, epochs=4 * (1 + kills))
    crash_job.run(wanted, InlineRunner(3))
    log, told = tmp_path / "process.log", folder / "telemetry.jsonl"
    for seed in range(kills):
        rng = random.Random(seed)
        events = lines(told) + rng.randrange(EVENTS_PER_DRIVER)
        with process("tests.support.crash_job", str(folder), MASTER, log=log) as driver:
            wait_until(
                lambda events=events, driver=driver: lines(told) >= events or driver.poll() is not None, f"{events} events"
            )
            time.sleep(rng.uniform(0, 0.4))
            assert driver.poll() is None, log.read_text()[-2000:]
            kill_group(driver)
    with process("tests.support.crash_job", str(folder), MASTER, log=log) as driver:
        assert driver.wait(timeout=300) == 0, log.read_text()[-2000:]
    assert_same(crash_job.shown(folder), crash_job.shown(wanted), f"{kills} drivers killed")
