"""The driver of a real Spark job is killed with kill -9 at random moments, and started again."""

import random
import time
from pathlib import Path

import polars as pl
import pytest

from resurge.testing.inline_runner import InlineRunner
from tests.properties.test_crash_points import assert_same
from tests.support import crash_job
from tests.support.processes import kill_group, process, wait_until

MASTER = "local[2]"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many seeds as asked for."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--crash-seeds")))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """What the job shows when nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed")
    crash_job.write_input(folder)
    crash_job.run(folder, InlineRunner(3))
    return crash_job.shown(folder)


def lines(path: Path) -> int:
    """How many events have been logged."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_driver_killed_at_a_random_moment_resumes_with_the_same_output(
    seed: int, tmp_path: Path, undisturbed: dict[str, pl.DataFrame]
) -> None:
    """Nothing lost and nothing repeated, whenever the driver dies."""
    rng = random.Random(seed)
    crash_job.write_input(tmp_path)
    log = tmp_path / "process.log"
    events = rng.randrange(crash_job.EPOCHS + 3)
    with process("tests.support.crash_job", str(tmp_path), MASTER, log=log) as driver:
        wait_until(lambda: lines(tmp_path / "telemetry.jsonl") >= events or driver.poll() is not None, f"{events} events")
        time.sleep(rng.uniform(0, 0.4))
        kill_group(driver)
    with process("tests.support.crash_job", str(tmp_path), MASTER, log=log) as driver:
        assert driver.wait(timeout=180) == 0, log.read_text()[-2000:]
    assert_same(crash_job.shown(tmp_path), undisturbed, f"seed {seed}")
