"""A node's local store: segments of state runs, memory-mapped, and buffers. Lost with its node.

It begins in a place that is memory-backed where the machine has that. What does not fit there goes to the node's disk.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from resurge.errors import StorageError
from resurge.storage.owners import OWNER_FILE, mark_owner, remove_orphans
from resurge.storage.runs import RunRef, SavedCohort, manifest_of

FOLDERS = "resurge-*"
OWNER_ONLY = 0o700
_NO_ROOM = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR}
)


class Used(NamedTuple):
    """Bytes of a node's local store in its first place, and on disk because that was full."""

    first_bytes: int = 0
    overflow_bytes: int = 0


class NodeStore:
    """Files of one node, below one folder, within a limit; those beyond it are below the folder for Spark's own local files."""

    def __init__(self, folder: Path, limit_bytes: int | None = None) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.overflow = scratch_folder() / folder.parent.name / folder.name
        self._maps: dict[str, memoryview] = {}
        self._opened: set[Path] = set()

    def write(self, name: str, content: bytes | Sequence[bytes | memoryview]) -> None:
        """Write a file, given in one piece or in several; a half-written one is never seen under its name."""
        present = self._present()
        for deleted in self._maps.keys() - present.keys():
            # Another process of this node deleted the file; its memory is free once nobody has it mapped.
            self._maps.pop(deleted)
        pieces = [content] if isinstance(content, bytes) else content
        used_bytes = sum(size for size, is_first in present.values() if is_first)
        if self.limit_bytes is None or used_bytes + sum(map(len, pieces)) <= self.limit_bytes:
            try:
                return self._write(self.folder, name, pieces)
            except OSError as error:
                if error.errno not in _NO_ROOM or self.folder == self.overflow:
                    raise _refused(self.folder / name, error) from error
        try:
            return self._write(self.overflow, name, pieces)
        except OSError as error:
            raise _refused(self.overflow / name, error) from error

    def _write(self, folder: Path, name: str, pieces: Sequence[bytes | memoryview]) -> None:
        if folder not in self._opened or not folder.exists():
            self._open(folder)
        temporary = folder / f".{name}.tmp"
        try:
            with temporary.open("wb") as file:
                file.writelines(pieces)
            temporary.rename(folder / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def _open(self, folder: Path) -> None:
        """Make the folder, for its owner only, after removing what dead jobs and lost nodes left on this machine."""
        remove_orphans(folder.parent.parent, FOLDERS)
        folder.parent.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
        folder.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
        mark_owner(folder)
        self._opened.add(folder)

    def _present(self) -> dict[str, tuple[int, bool]]:
        """The size of every file, and whether it is in the first place."""
        found: dict[str, tuple[int, bool]] = {}
        for folder in (self.overflow, self.folder):
            try:
                with os.scandir(folder) as entries:
                    found |= {entry.name: (entry.stat().st_size, folder == self.folder) for entry in entries}
            except OSError:
                # It is not there yet, or a file was deleted while it was looked at.
                continue
        found.pop(OWNER_FILE, None)
        return found

    def sizes_bytes(self) -> dict[str, int]:
        """The size of every file."""
        return {name: size for name, (size, _) in self._present().items()}

    def used(self) -> Used:
        """How much room the files take."""
        sizes = self._present().values()
        return Used(sum(size for size, first in sizes if first), sum(size for size, first in sizes if not first))

    def path(self, name: str) -> Path:
        """Where a file is: in the first place, else on disk, if it is there at all."""
        return self.folder / name if (self.folder / name).exists() else self.overflow / name

    def view(self, name: str) -> memoryview:
        """A file's content, memory-mapped."""
        if name not in self._maps:
            path = self.path(name)
            try:
                # Closed at once: the mapping stays without it, and descriptors are few.
                with pa.memory_map(str(path)) as file:
                    self._maps[name] = memoryview(file.read_buffer())
            except (OSError, ValueError, pa.ArrowException) as error:
                raise StorageError(f"cannot read {path} in the node's local store: {error}") from error
        return self._maps[name]

    def run(self, reference: RunRef) -> memoryview:
        """The bytes of a run."""
        return self.view(reference.segment)[reference.offset : reference.offset + reference.length]

    def manifest(self, segment: str) -> list[SavedCohort]:
        """What the cohorts that a segment closes consist of."""
        content = manifest_of(self.view(segment), str(self.folder / segment))
        return msgspec.json.decode(content, type=list[SavedCohort])

    def remove(self, names: list[str]) -> None:
        """Delete files that no version needs any more; a mapping that is in use lives until it is let go."""
        for name in names:
            self._maps.pop(name, None)
            for folder in (self.folder, self.overflow):
                (folder / name).unlink(missing_ok=True)


def _refused(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot write {path}: {error.strerror}; make room in the node's local store, or give it another place with "
        "--local-store, and run the same command again"
    )


def scratch_folder() -> Path:
    """A folder on this node's disk: Spark's own for an executor, which is removed with it; else the temporary folder."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return Path(folders[0] or tempfile.gettempdir())


def remove_job(root: str) -> None:
    """Remove what a job kept on this machine, in the first place and on disk."""
    for folder in (Path(root), scratch_folder() / Path(root).name):
        shutil.rmtree(folder, ignore_errors=True)


def job_name(job_id: str, generation: int, local_root: str) -> str:
    """Name a run of a job, and remove what its killed drivers left in the local store of this machine."""
    for left in Path(local_root).glob(f"resurge-{job_id}-*"):
        shutil.rmtree(left, ignore_errors=True)
    return f"{job_id}-{generation}"
