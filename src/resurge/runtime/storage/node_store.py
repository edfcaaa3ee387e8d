"""A node's local store: segments of state runs, memory-mapped, and buffers. Lost with its node."""

import mmap
import shutil
from pathlib import Path

import msgspec

from resurge.errors import StorageError
from resurge.runtime.storage.runs import RunRef, SavedState, manifest_of


class NodeStore:
    """Files of one node, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._maps: dict[str, memoryview] = {}

    def write(self, name: str, content: bytes) -> None:
        """Write a file; a half-written one is never seen under its name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f".{name}.tmp"
        try:
            temporary.write_bytes(content)
            temporary.rename(self.folder / name)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise StorageError(
                f"cannot write {self.folder / name}: {error.strerror}; make room in the node's local store and run again to resume"
            ) from error

    def view(self, name: str) -> memoryview:
        """A file's content, memory-mapped."""
        if name not in self._maps:
            path = self.folder / name
            try:
                with path.open("rb") as file:
                    self._maps[name] = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            except (OSError, ValueError) as error:
                raise StorageError(f"cannot read {path} in the node's local store: {error}") from error
        return self._maps[name]

    def run(self, reference: RunRef) -> memoryview:
        """The bytes of a run."""
        return self.view(reference.segment)[reference.offset : reference.offset + reference.length]

    def manifest(self, segment: str) -> dict[str, SavedState]:
        """What the partitions that a segment closes consist of."""
        content = manifest_of(self.view(segment), str(self.folder / segment))
        return msgspec.json.decode(content, type=dict[str, SavedState])

    def remove(self, names: list[str]) -> None:
        """Delete files that no version needs any more; a mapping that is in use lives until it is let go."""
        for name in names:
            self._maps.pop(name, None)
            (self.folder / name).unlink(missing_ok=True)


def job_name(job_id: str, generation: int, local_root: str) -> str:
    """Name a run of a job, and remove what its killed drivers left in the local store of this machine."""
    for left in Path(local_root).glob(f"resurge-{job_id}-*"):
        shutil.rmtree(left, ignore_errors=True)
    return f"{job_id}-{generation}"
