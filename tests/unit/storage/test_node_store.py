"""A node's local store: no room, limits, files of the dead, and files that another process deleted."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from resurge.errors import StorageError
from resurge.runtime.driver.session import LEAST_SHARED_MEMORY_BYTES, default_local_root
from resurge.storage.node_store import NodeStore, remove_job
from resurge.storage.owners import OWNER_FILE


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that Spark has for local files of this node."""
    folder = tmp_path / "disk"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{folder},{tmp_path / 'other'}")
    return folder


def mapped(folder: Path) -> int:
    """How many files of a folder this process has mapped or open, deleted ones too."""
    found = Path("/proc/self/maps").read_text().count(str(folder))
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(descriptor.readlink()).startswith(str(folder))
    return found


def test_files_that_another_process_deleted_are_not_kept_open_or_mapped(tmp_path: Path) -> None:
    """Worker processes of a node take turns: one reads a segment, another is told to delete it."""
    reader, deleter = NodeStore(tmp_path / "job" / "n1"), NodeStore(tmp_path / "job" / "n1")
    for epoch in range(50):
        deleter.write(f"segment-{epoch}", bytes(5_000))
        assert bytes(reader.view(f"segment-{epoch}")[:3]) == b"\0\0\0"
        if epoch >= 2:
            deleter.remove([f"segment-{epoch - 2}"])
        reader.write(f"own-{epoch}", b"state")
        reader.remove([f"own-{epoch}"])
    assert mapped(tmp_path / "job") <= 3


def test_a_mapping_in_use_outlives_its_file(tmp_path: Path) -> None:
    """A step that runs still reads it."""
    store = NodeStore(tmp_path / "job" / "n1")
    store.write("segment", b"state")
    view = store.view("segment")
    NodeStore(tmp_path / "job" / "n1").remove(["segment"])
    store.write("next", b"more")
    assert bytes(view) == b"state"


def test_what_exceeds_the_limit_goes_to_disk_and_is_found_there(tmp_path: Path, scratch: Path) -> None:
    """A memory-backed place is a part of the node's memory."""
    store = NodeStore(tmp_path / "memory" / "resurge-j" / "n1", limit_bytes=100)
    for name, size in (("a", 60), ("b", 60), ("c", 30)):
        store.write(name, name.encode() * size)
    assert sorted(path.name for path in (scratch / "resurge-j" / "n1").iterdir()) == [OWNER_FILE, "b"]
    assert [bytes(store.view(name))[:1] for name in "abc"] == [b"a", b"b", b"c"]
    assert store.used() == (90, 60)
    store.remove(["a", "b"])
    assert store.used() == (30, 0)


@pytest.mark.parametrize("reason", ["full", "missing"])
def test_a_first_place_that_is_full_or_missing_is_made_up_for_by_the_disk(tmp_path: Path, scratch: Path, reason: str) -> None:
    """64 MB of shared memory, as many containers have, do not end the job."""
    root = tmp_path / "memory" if reason == "full" else tmp_path / "file" / "below"
    (tmp_path / "file").write_text("not a folder")
    store = NodeStore(root / "resurge-j" / "n1")
    if reason == "full":
        store.folder.mkdir(parents=True)
        # Whatever is written there finds no space left on the device.
        (store.folder / ".a.tmp").symlink_to("/dev/full")
    store.write("a", b"state")
    assert bytes(store.view("a")) == b"state"
    assert (scratch / "resurge-j" / "n1" / "a").exists()


def test_no_room_anywhere_is_an_error_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And names the place."""
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "file"))
    with pytest.raises(StorageError, match=r"cannot write .*file/resurge-j/n1/a: .*--local-store"):
        NodeStore(tmp_path / "file" / "resurge-j" / "n1").write("a", b"state")


def test_stores_of_dead_processes_are_removed_when_a_node_begins_there(tmp_path: Path, scratch: Path) -> None:
    """Of lost nodes of this job, and of other jobs; the living keep theirs."""
    writing = "import sys; from pathlib import Path; from resurge.storage.node_store import NodeStore\n"
    writing += "for folder in sys.argv[1:]: NodeStore(Path(folder)).write('a', b'state')\n"
    dead = [tmp_path / "root" / "resurge-one" / "n1", tmp_path / "root" / "resurge-two" / "n7"]
    subprocess.run([sys.executable, "-c", writing, *map(str, dead)], check=True)
    foreign = tmp_path / "root" / "resurge-three" / "n1"
    foreign.mkdir(parents=True)
    (foreign / OWNER_FILE).write_text("another-machine pid:[1] 1 1")
    alive = NodeStore(tmp_path / "root" / "resurge-one" / "n2")
    assert all(folder.exists() for folder in dead)
    alive.write("b", b"state")
    NodeStore(tmp_path / "root" / "resurge-one" / "n3").write("c", b"state")
    assert [folder.exists() for folder in dead] == [False, False]
    assert not (tmp_path / "root" / "resurge-two").exists()
    assert foreign.exists()
    assert (alive.folder / "b").exists()


def test_only_the_owner_may_read_a_local_store(tmp_path: Path) -> None:
    """It has the rows of users."""
    store = NodeStore(tmp_path / "resurge-j" / "n1")
    store.write("a", b"state")
    assert [path.stat().st_mode & 0o777 for path in (store.folder, store.folder.parent)] == [0o700, 0o700]


def test_the_end_of_a_job_removes_both_places(tmp_path: Path, scratch: Path) -> None:
    """Of all nodes of this machine."""
    for node, limit in (("n1", None), ("n2", 0)):
        NodeStore(tmp_path / "resurge-j" / node, limit).write("a", b"state")
    assert (scratch / "resurge-j" / "n2" / "a").exists()
    remove_job(str(tmp_path / "resurge-j"))
    assert not (tmp_path / "resurge-j").exists()
    assert not (scratch / "resurge-j").exists()


def test_shared_memory_is_the_default_place_only_if_there_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many containers have 64 MB of it."""
    assert default_local_root(tmp_path) == str(tmp_path)

    class Small:
        f_blocks, f_frsize = 16_384, 4_096

    assert Small.f_blocks * Small.f_frsize < LEAST_SHARED_MEMORY_BYTES
    monkeypatch.setattr(os, "statvfs", lambda path: Small)
    assert default_local_root(tmp_path) != str(tmp_path)
