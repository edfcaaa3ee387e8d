"""The durable store: any fsspec URL. Files are written once; creating one that exists fails."""

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any

import fsspec

from resurge.errors import StorageError


class DurableStore:
    """Named files below one URL. Every write is whole or not there: a temporary file, then a link or rename."""

    def __init__(self, url: str, faults: "Faults | None" = None) -> None:
        self.url = url
        self.faults = faults if faults is not None else Faults.from_environment()
        try:
            self.filesystem, root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise StorageError(f"{url!r} is not a store that can be opened: {error}; expected a path or an fsspec URL") from error
        self.root = str(root).rstrip("/")
        self.is_local = "file" in _protocols(self.filesystem)

    def __reduce__(self) -> tuple[Any, ...]:
        return DurableStore, (self.url,)

    def path(self, name: str) -> str:
        """The full path of a file in the store."""
        return f"{self.root}/{name}"

    def create(self, name: str, content: bytes) -> bool:
        """Write a new file; False, and nothing changed, if it exists."""
        self.faults.before_write(name)
        with self._explained("write", name):
            created = self._create_local(name, content) if self.is_local else self._create_remote(name, content)
        self.faults.after_write(name)
        return created

    def replace(self, name: str, content: bytes) -> None:
        """Write a file, whether or not it exists."""
        self.faults.before_write(name)
        with self._explained("write", name):
            if self.is_local:
                temporary = self._temporary(name, content)
                temporary.replace(self.path(name))
            else:
                self.filesystem.pipe_file(self.path(name), content)
        self.faults.after_write(name)

    def read(self, name: str) -> bytes:
        """A file's content."""
        with self._explained("read", name):
            return bytes(self.filesystem.cat_file(self.path(name)))

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """Part of a file."""
        with self._explained("read", name):
            return bytes(self.filesystem.cat_file(self.path(name), start=offset, end=offset + length))

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        with self._explained("look up", name):
            return bool(self.filesystem.exists(self.path(name)))

    def names(self, folder: str) -> list[str]:
        """The files in a folder, sorted; a folder that is not there has none. Unfinished writes are left out."""
        with self._explained("list", folder):
            try:
                found = (
                    self.filesystem.ls(self.path(folder), detail=True, refresh=True)
                    if not self.is_local
                    else self._listed(folder)
                )
            except FileNotFoundError:
                return []
        files = [entry["name"].rsplit("/", 1)[-1] for entry in found if entry["type"] == "file"]
        return sorted(f"{folder}/{name}" for name in files if not name.startswith("."))

    def remove(self, name: str) -> None:
        """Delete a file that may be gone already."""
        self.faults.before_write(name)
        with self._explained("delete", name), contextlib.suppress(FileNotFoundError):
            self.filesystem.rm_file(self.path(name))

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        with os.scandir(self.path(folder)) as entries:
            return [{"name": entry.name, "type": "file" if entry.is_file() else "directory"} for entry in entries]

    def _create_local(self, name: str, content: bytes) -> bool:
        target = Path(self.path(name))
        if target.exists():
            return False
        temporary = self._temporary(name, content)
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def _temporary(self, name: str, content: bytes) -> Path:
        target = Path(self.path(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
        try:
            with temporary.open("wb") as file:
                self.faults.during_write(name)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary

    def _create_remote(self, name: str, content: bytes) -> bool:
        path = self.path(name)
        with contextlib.suppress(FileExistsError):
            self.filesystem.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        try:
            # Object stores that support it make this a conditional put.
            with self.filesystem.open(path, "xb") as file:
                file.write(content)
        except FileExistsError:
            return False
        except (ValueError, NotImplementedError):
            if self.filesystem.exists(path):
                return False
            self.filesystem.pipe_file(path, content)
        return True

    @contextlib.contextmanager
    def _explained(self, action: str, name: str) -> Any:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StorageError(
                f"cannot {action} {self.path(name)}: {error.strerror or error}; nothing was changed: "
                "make room or set its permissions right, then run the same command again to resume"
            ) from error


class Faults:
    """Deliberate crashes for tests: `RESURGE_CRASH_AT_WRITE=n` kills the process at the n-th durable write.

    Odd numbers strike before a write, even ones after it, so that counting up passes every gap between two writes.
    """

    def __init__(self, crash_at: int | None = None) -> None:
        self.crash_at = crash_at
        self.passed = 0

    @classmethod
    def from_environment(cls) -> "Faults":
        """Without the variable, nothing ever happens."""
        asked = os.environ.get("RESURGE_CRASH_AT_WRITE", "")
        return cls(int(asked) if asked.isdigit() else None)

    def before_write(self, name: str) -> None:
        """Called before a durable write."""
        self._pass()

    def during_write(self, name: str) -> None:
        """Called inside a durable write, when its file is open."""

    def after_write(self, name: str) -> None:
        """Called after a durable write."""
        self._pass()

    def _pass(self) -> None:
        if self.crash_at is None:
            return
        self.passed += 1
        if self.passed >= self.crash_at:
            os.kill(os.getpid(), 9)


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
