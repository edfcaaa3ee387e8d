"""What is written on this machine: created once, whole, and still there after a loss of power."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from resurge.connectors import local_files
from resurge.connectors.locations import plain_location
from resurge.connectors.sinks import ParquetSink
from resurge.errors import StorageError
from resurge.runtime.driver.options import RunOptions
from resurge.storage.durable import DurableStore
from resurge.storage.exclusive_create import refuse_unsafe
from resurge.storage.journal import EpochPlanned, Journal
from resurge.testing.sink_conformance import JOB, SCHEMA, rows_for


class Disk:
    """Knows what a loss of power would leave: names that their folder had when it was last flushed, and flushed files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: set[str] = set()
        self.files: set[tuple[int, int]] = set()
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        status = os.fstat(descriptor)
        if path.is_dir():
            self.names = {name for name in self.names if str(Path(name).parent) != str(path)}
            self.names |= {str(entry) for entry in path.iterdir()}
        else:
            self.files.add((status.st_ino, status.st_size))

    def assert_kept(self, path: Path, root: Path) -> None:
        """A file with its content, and every folder from the root down."""
        status = path.stat()
        assert (status.st_ino, status.st_size) in self.files, f"the content of {path} would be lost"
        for part in [path, *path.parents]:
            if part == root:
                return
            assert str(part) in self.names, f"{part} would be lost"


def write_journal(root: Path) -> list[Path]:
    journal = Journal(DurableStore(str(root / "deep" / "job")))
    journal.take_over()
    journal.append(EpochPlanned(1, {}, {}, 0.0))
    return sorted((root / "deep" / "job" / "journal").iterdir())


def write_replaced(root: Path) -> list[Path]:
    DurableStore(str(root / "job")).replace("sources/a.json", b"content")
    return [root / "job" / "sources" / "a.json"]


def write_staged(root: Path) -> list[Path]:
    sink = ParquetSink(root / "deep" / "out")
    sink.open("q", SCHEMA, JOB)
    sink.stage("q", 1, "p0", "a1", rows_for(1, "p0", 2))
    return [root / "deep" / "out" / "_owner.json", root / "deep" / "out" / "_staging" / "1.a1.p0.parquet.staged"]


def write_published(root: Path) -> list[Path]:
    sink = ParquetSink(root / "out")
    sink.open("q", SCHEMA, JOB)
    sink.publish([sink.stage("q", 1, "p0", "a1", rows_for(1, "p0", 2))])
    return [root / "out" / "epoch=1" / "p0.parquet"]


@pytest.mark.parametrize("write", [write_journal, write_replaced, write_staged, write_published])
def test_what_was_written_survives_a_loss_of_power(
    write: Callable[[Path], list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are flushed, and so is every folder that got a new name."""
    disk = Disk(monkeypatch)
    for path in write(tmp_path):
        disk.assert_kept(path, tmp_path)


def repeated_link(source: Path, target: Path, link: Callable[..., None] = os.link) -> None:
    """As NFS does when the answer to a request is lost: the request is sent again, and finds the link that it made."""
    link(source, target)
    link(source, target)


def test_a_repeated_request_of_a_network_file_system_is_not_taken_for_a_takeover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that is there is our own."""
    monkeypatch.setattr(os, "link", repeated_link)
    assert local_files.create(tmp_path / "record", b"ours")
    assert not local_files.create(tmp_path / "record", b"ours")
    journal = Journal(DurableStore(str(tmp_path / "job")))
    journal.take_over()
    journal.append(EpochPlanned(1, {}, {}, 0.0))
    refuse_unsafe(DurableStore(str(tmp_path / "other")))


def no_link(source: Path, target: Path) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_a_file_system_without_hard_links_is_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions are not what is wrong, so they are not what the message speaks of."""
    monkeypatch.setattr(os, "link", no_link)
    with pytest.raises(StorageError, match=r"job has no hard links, so that two drivers.*another checkpoint URL") as caught:
        refuse_unsafe(DurableStore(str(tmp_path / "job")))
    assert "permissions" not in str(caught.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_sink_needs_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files appear by renaming."""
    monkeypatch.setattr(os, "link", no_link)
    sink = ParquetSink(tmp_path / "out")
    sink.open("q", SCHEMA, JOB)
    sink.publish([sink.stage("q", 1, "p0", "a1", rows_for(1, "p0", 2))])
    assert pl.read_parquet(tmp_path / "out" / "epoch=1" / "p0.parquet", hive_partitioning=False).height == 2


def test_a_location_is_absolute_and_spelled_in_one_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file source knows files by their names: from another working directory they must be the same."""
    (tmp_path / "home" / "data").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "home" / "data")
    monkeypatch.chdir(tmp_path / "home")
    assert plain_location("data/*.csv") == f"{tmp_path}/home/data/*.csv"
    assert plain_location("../home/./data/*.csv") == f"{tmp_path}/home/data/*.csv"
    assert plain_location(f"{tmp_path}/link/../data") == f"{tmp_path}/home/data"
    assert plain_location(f"{tmp_path}/link/in") == f"{tmp_path}/link/in"
    assert DurableStore("jobs").url == f"{tmp_path}/home/jobs"
    assert RunOptions("../home/jobs", local_root="local").checkpoint_url == f"{tmp_path}/home/jobs"
    assert RunOptions("s3://bucket/jobs", local_root="local").local_root == f"{tmp_path}/home/local"
