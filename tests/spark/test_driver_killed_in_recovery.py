"""Nodes of a real cluster die, and then, while their queries come back, the driver; again while the next one catches up."""

from pathlib import Path

from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.telemetry.events import CatchUpFinished, EpochFinished, Event, JobStarted, NodeLost
from resurge.telemetry.log import read_events
from resurge.testing.inline_runner import InlineRunner
from tests.properties.test_crash_points import assert_same
from tests.support import crash_job
from tests.support.processes import kill_group, process, wait_until

NODES = 3
EPOCHS = 20


def told(folder: Path, kind: type[Event], driver: int) -> int:
    """How many events of a kind there are of a driver, which are numbered from 1."""
    path = folder / "telemetry.jsonl"
    found = list(read_events(path)) if path.exists() else []
    starts = [index for index, event in enumerate(found) if isinstance(event, JobStarted)]
    return sum(isinstance(event, kind) for event in found[starts[driver - 1] :]) if len(starts) >= driver else 0


def test_a_recovery_goes_on_with_the_next_driver(tmp_path: Path) -> None:
    """Two of three nodes are killed, then two drivers in a row; what the third one ends with is what an undisturbed run has."""
    wanted, folder = tmp_path / "undisturbed", tmp_path / "disturbed"
    for each in (wanted, folder):
        crash_job.write_input(each, epochs=EPOCHS)
    crash_job.run(wanted, InlineRunner(NODES))
    log = tmp_path / "process.log"
    with EmbeddedCluster(NODES) as cluster:
        command = ("tests.support.crash_job", str(folder), cluster.master_url)
        with process(*command, log=log) as driver:
            wait_until(lambda: told(folder, EpochFinished, 1) >= 5, "five epochs")
            cluster.kill("node-1", "node-2")
            wait_until(lambda: told(folder, NodeLost, 1) >= 2, "the loss of two nodes")
            assert driver.poll() is None, log.read_text()[-2000:]
            kill_group(driver)
        with process(*command, log=log) as driver:
            wait_until(lambda: told(folder, CatchUpFinished, 2) >= 1, "a step of the second driver")
            assert driver.poll() is None, log.read_text()[-2000:]
            kill_group(driver)
        cluster.add(1)
        with process(*command, log=log) as driver:
            assert driver.wait(timeout=180) == 0, log.read_text()[-2000:]
    assert_same(crash_job.shown(folder), crash_job.shown(wanted), "two drivers and two nodes killed")
