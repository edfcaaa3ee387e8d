"""Drivers are killed with kill -9 while they read from Kafka and write to each sink; the server's own view is compared."""

import random
import subprocess
import time
from pathlib import Path

import pytest

from resurge.telemetry.events import EpochFinished
from resurge.telemetry.log import read_events
from tests.support import connector_job, services
from tests.support.connector_job import CONNECTORS, Settings
from tests.support.processes import kill_group, process, wait_until

KILLS = 2


@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("connector", CONNECTORS)
def test_killed_drivers_lose_and_repeat_nothing(kafka_servers, postgres, unique, tmp_path, connector, seed):
    """Killed at random moments, in epochs and between them; what the server shows is what the input says, row for row."""
    rng = random.Random(seed)
    settings = Settings(kafka_servers, postgres, f"crash_{unique[-6:]}", rows=1_500)
    connector_job.prepare(tmp_path, settings, connector)
    command, log = ("tests.support.connector_job", str(tmp_path), "inline", connector), tmp_path / "process.log"
    for _ in range(KILLS):
        enough = epochs(tmp_path) + rng.randint(1, 4)
        with process(*command, log=log) as driver:
            wait_for_epochs(tmp_path, enough, driver)
            assert driver.poll() is None, log.read_text()[-2000:]
            time.sleep(rng.uniform(0, 0.1))
            kill_group(driver)
    with process(*command, log=log) as driver:
        assert driver.wait(timeout=120) == 0, log.read_text()[-2000:]
    found = connector_job.differences(tmp_path, settings, connector)
    assert (found["lost"], found["repeated"]) == (0, 0), f"seed {seed}: {found}"


def epochs(folder: Path) -> int:
    """How many epochs have been committed and shown."""
    path = folder / "telemetry.jsonl"
    return sum(isinstance(event, EpochFinished) for event in read_events(path)) if path.exists() else 0


def wait_for_epochs(folder: Path, enough: int, driver: subprocess.Popen[bytes]) -> None:
    """Wait until so many epochs are done, or the driver has ended."""
    wait_until(lambda: epochs(folder) >= enough or driver.poll() is not None, f"{enough} epochs")


@pytest.mark.parametrize("service, connector", [("kafka", "kafka"), ("postgres", "postgres")])
def test_a_server_that_dies_in_the_middle_is_waited_for(kafka_servers, postgres, unique, tmp_path, service, connector):
    """Killed and started again while the job runs; the job goes on by itself, and nothing is lost or repeated."""
    settings = Settings(kafka_servers, postgres, f"restart_{unique[-6:]}", rows=2_000, interval_s=0.05)
    connector_job.prepare(tmp_path, settings, connector)
    log = tmp_path / "process.log"
    with process("tests.support.connector_job", str(tmp_path), "inline", connector, log=log) as driver:
        wait_for_epochs(tmp_path, 4, driver)
        services.restart(service)
        assert driver.wait(timeout=200) == 0, log.read_text()[-2000:]
    found = connector_job.differences(tmp_path, settings, connector)
    assert (found["lost"], found["repeated"]) == (0, 0), found
