"""A job that is kept at a relative path, on nodes that have working directories of their own."""

from pathlib import Path

from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.storage.stored_job import open_job
from resurge.telemetry.events import CheckpointFinished, JobStarted
from resurge.telemetry.log import read_events
from resurge.testing.inline_runner import InlineRunner
from tests.properties.test_crash_points import assert_same
from tests.support import crash_job
from tests.support.processes import kill_group, process, wait_until

EPOCHS = 20


def checkpoints(folder: Path, driver: int) -> int:
    """How many checkpoints a driver has made, which are numbered from 1."""
    path = folder / "telemetry.jsonl"
    found = list(read_events(path)) if path.exists() else []
    starts = [index for index, event in enumerate(found) if isinstance(event, JobStarted)]
    mine = found[starts[driver - 1] :] if len(starts) >= driver else []
    return sum(isinstance(event, CheckpointFinished) for event in mine)


def test_a_relative_path_means_the_same_place_for_the_driver_and_every_node(tmp_path: Path) -> None:
    """The driver is killed twice and started again from the same and from another working directory; nothing is lost."""
    wanted, folder = tmp_path / "undisturbed", tmp_path / "home" / "work"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for each in (wanted, folder):
        crash_job.write_input(each, epochs=EPOCHS)
    crash_job.run(wanted, InlineRunner(2))
    log = tmp_path / "process.log"
    runs = [("work", folder.parent), ("work", folder.parent), ("../home/work", elsewhere)]
    with EmbeddedCluster(2) as cluster:
        for number, (path, cwd) in enumerate(runs, 1):
            with process("tests.support.crash_job", path, cluster.master_url, log=log, cwd=cwd) as driver:
                if number < len(runs):
                    ready = lambda number=number, driver=driver: checkpoints(folder, number) >= 1 or driver.poll() is not None  # noqa: E731
                    wait_until(ready, f"a checkpoint of driver {number}")
                    assert driver.poll() is None, log.read_text()[-2000:]
                    assert all(problem is None for problem in open_job(str(folder / "job")).problems().values())
                    kill_group(driver)
                else:
                    assert driver.wait(timeout=180) == 0, log.read_text()[-2000:]
    assert_same(crash_job.shown(folder), crash_job.shown(wanted), "a relative path")
