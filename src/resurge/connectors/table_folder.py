"""The data files of a table's folder, on this machine or at any fsspec URL."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resurge.connectors.locations import filesystem, is_local
from resurge.errors import SinkError


@dataclass(frozen=True)
class TableFolder:
    """Write, measure and remove files beside those of the table."""

    path: str

    def write(self, name: str, content: bytes) -> None:
        """Write a file so that it survives a crash of the machine."""
        try:
            if not is_local(self.path):
                filesystem(self.path).pipe_file(f"{self.path}/{name}", content)
                return
            Path(self.path).mkdir(parents=True, exist_ok=True)
            with (Path(self.path) / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SinkError(
                f"could not write {self.path}/{name}: {error}; make room or make the folder writable, and run the same command again"
            ) from error

    def size_bytes(self, name: str) -> int | None:
        """How large a file is, or None if it is gone."""
        try:
            return (
                int(self._remote().size(f"{self.path}/{name}"))
                if not is_local(self.path)
                else (Path(self.path) / name).stat().st_size
            )
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if is_local(self.path):
            (Path(self.path) / name).unlink(missing_ok=True)
        elif self.size_bytes(name) is not None:
            self._remote().rm_file(f"{self.path}/{name}")

    def names(self, prefix: str) -> list[str]:
        """The files whose names begin so."""
        try:
            paths = Path(self.path).iterdir() if is_local(self.path) else self._remote().ls(self.path, detail=False)
            found = [str(path).rpartition("/")[2] for path in paths]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if name.startswith(prefix))

    def _remote(self) -> Any:
        remote = filesystem(self.path)
        remote.invalidate_cache()
        return remote
