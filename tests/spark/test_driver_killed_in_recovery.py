"""Nodes of a real cluster die, and then, while their queries come back, the driver; again while the next one catches up.

The job is kept at a relative path, though nodes have working directories of their own.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen

from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.storage.stored_job import open_job
from resurge.telemetry.events import CatchUpFinished, EpochFinished, Event, JobStarted, NodeLost
from resurge.telemetry.log import read_events
from resurge.testing.inline_runner import InlineRunner
from tests.properties.test_crash_points import assert_same
from tests.support import crash_job
from tests.support.processes import kill_group, process, wait_until

NODES = 3
EPOCHS = 14


def told(folder: Path, kind: type[Event], driver: int) -> int:
    """How many events of a kind there are of a driver, which are numbered from 1."""
    path = folder / "telemetry.jsonl"
    found = list(read_events(path)) if path.exists() else []
    starts = [index for index, event in enumerate(found) if isinstance(event, JobStarted)]
    return sum(isinstance(event, kind) for event in found[starts[driver - 1] :]) if len(starts) >= driver else 0


def assert_every_checkpoint_is_whole(folder: Path) -> None:
    """What the manifests name is where they say, and not in a folder of some node."""
    problems = open_job(str(folder / "job")).problems()
    assert problems and all(problem is None for problem in problems.values())


def test_a_recovery_goes_on_with_the_next_driver_wherever_that_is_started(tmp_path: Path) -> None:
    """Two of three nodes are killed, then two drivers in a row; the second is started in the same folder, the third in another.

    What the third one ends with is what an undisturbed run has.
    """
    wanted, folder, elsewhere = tmp_path / "undisturbed", tmp_path / "home" / "work", tmp_path / "elsewhere"
    elsewhere.mkdir()
    for each in (wanted, folder):
        crash_job.write_input(each, epochs=EPOCHS)
    crash_job.run(wanted, InlineRunner(NODES))
    log = tmp_path / "process.log"
    with EmbeddedCluster(NODES) as cluster:

        def started(path: str, cwd: Path) -> AbstractContextManager[Popen[bytes]]:
            return process("tests.support.crash_job", path, cluster.master_url, log=log, cwd=cwd)

        with started("work", folder.parent) as driver:
            # Five epochs, so that some come after the first checkpoint, of which there is one every three epochs.
            wait_until(lambda: told(folder, EpochFinished, 1) >= 5 or driver.poll() is not None, "five epochs")
            assert driver.poll() is None, log.read_text()[-2000:]
            cluster.kill("node-1", "node-2")
            wait_until(lambda: told(folder, NodeLost, 1) >= 2, "the loss of two nodes")
            assert driver.poll() is None, log.read_text()[-2000:]
            kill_group(driver)
        assert_every_checkpoint_is_whole(folder)
        with started("work", folder.parent) as driver:
            # Where the first driver was killed right after a checkpoint, the second has nothing to catch up with.
            wait_until(
                lambda: told(folder, CatchUpFinished, 2) + told(folder, EpochFinished, 2) >= 1, "a step of the second driver"
            )
            assert driver.poll() is None, log.read_text()[-2000:]
            kill_group(driver)
        cluster.add(1)
        with started("../home/work", elsewhere) as driver:
            assert driver.wait(timeout=300) == 0, log.read_text()[-2000:]
    assert_every_checkpoint_is_whole(folder)
    assert list(elsewhere.iterdir()) == []
    assert_same(crash_job.shown(folder), crash_job.shown(wanted), "two drivers and two nodes killed")
