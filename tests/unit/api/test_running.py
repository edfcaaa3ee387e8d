"""What `resurge.run` leaves behind; the job itself runs without Spark here."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl
import pytest

from resurge import MemorySink, TopologyBuilder, posts
from resurge.api import running
from resurge.errors import JobError, ResurgeError
from tests.support.inline_sessions import run_inline


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run in this process, with temporary folders in tmp_path; has an entry for each session that was stopped."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return run_inline(monkeypatch)


def counted(sink: MemorySink, *, fails: bool = False) -> TopologyBuilder:
    """A job that shows its posts, or fails in the first epoch."""

    def shown(frame: pl.DataFrame) -> pl.DataFrame:
        if fails and frame.height:
            raise ValueError("broken")
        return frame

    job = TopologyBuilder("job", key_groups=2)
    job.source("posts", posts(total=20, posts_per_epoch=10), event_time="time").filter("all", shown).query(sink=sink)
    return job


def test_a_run_without_a_checkpoint_folder_leaves_no_folder_behind(tmp_path, stopped):
    """Nobody could find it again, and it would fill the disk run by run."""
    sink = MemorySink()
    running.run(counted(sink), interval=0, until_idle=True)
    assert sink.table().height == 20
    assert stopped == ["resurge job"]
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_leaves_no_folder_behind_either(tmp_path, stopped, monkeypatch):
    """Neither a job that fails nor a Spark that does not start."""
    with pytest.raises(ResurgeError, match="broken"):
        running.run(counted(MemorySink(), fails=True), interval=0, until_idle=True)
    assert stopped == ["resurge job"]

    def refuse(*given: object) -> None:
        raise JobError("Spark did not start")

    monkeypatch.setattr(running, "runner_on", refuse)
    with pytest.raises(JobError):
        running.run(counted(MemorySink()), until_idle=True)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_folder_that_was_named_stays(tmp_path, stopped):
    """The next run goes on there."""
    running.run(counted(MemorySink()), interval=0, until_idle=True, checkpoint=tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_an_engine_without_a_place_for_its_job_leaves_no_folder_behind(tmp_path):
    """When Python ends, the folder is gone."""
    code = """
from resurge.runtime.driver.options import RunOptions
from pathlib import Path
assert Path(RunOptions().url()).is_dir()
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"TMPDIR": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []
