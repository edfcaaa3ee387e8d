"""The durable store: any fsspec URL. Files are written once; creating one that exists fails."""

import contextlib
import errno
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec

from resurge.connectors import local_files
from resurge.connectors.local_files import NoHardLinksError
from resurge.connectors.locations import missing_package, plain_location
from resurge.errors import StorageError
from resurge.redaction import redacted


class DurableStore:
    """Named files below one URL. Every write is whole or not there."""

    def __init__(self, url: str, faults: "Faults | None" = None) -> None:
        # Executors get the URL and have another working directory.
        self.url = plain_location(url)
        self.faults = faults if faults is not None else Faults.from_environment()
        try:
            self.filesystem, root = fsspec.core.url_to_fs(self.url)
        except (ValueError, ImportError) as error:
            raise StorageError(
                f"{self.shown_url!r} is not a store that can be opened: {error}; expected a path or an fsspec URL{missing_package(self.url)}"
            ) from error
        self.root = str(root).rstrip("/")
        self.protocol = _protocols(self.filesystem)[0]
        self.is_local = "file" in _protocols(self.filesystem)
        self._folders: set[str] = set()
        self._remover: ThreadPoolExecutor | None = None
        self._removing: deque[Future[None]] = deque()

    def __reduce__(self) -> tuple[Any, ...]:
        return DurableStore, (self.url,)

    @property
    def shown_url(self) -> str:
        """The URL as messages show it."""
        return redacted(self.url)

    def path(self, name: str) -> str:
        """The full path of a file in the store."""
        return f"{self.root}/{name}"

    def location(self, name: str) -> str:
        """What others need to find a file or folder of the store: a local path, or a URL."""
        return self.path(name) if self.is_local else f"{self.url.rstrip('/')}/{name}"

    def create(self, name: str, content: bytes) -> bool:
        """Write a new file; False, and nothing changed, if one with other content is there."""
        self.faults.before_write(name)
        # A request whose answer was lost is repeated by the file system, and then finds the file that it wrote.
        created = self.create_once(name, content) or self._is_there(name, content)
        self.faults.after_write(name)
        return created

    @contextlib.contextmanager
    def creating(self, name: str) -> Iterator[Callable[[bytes | memoryview], object]]:
        """Write a new file piece by piece; it is there once it is whole."""
        self.faults.before_write(name)
        with self._explained("write", name):
            if self.is_local:
                with local_files.creating(Path(self.path(name)), lambda: self.faults.during_write(name)) as write:
                    yield write
            else:
                pieces = list[bytes | memoryview]()
                yield pieces.append
                content = b"".join(pieces)
                if not (self.create_once(name, content) or self._is_there(name, content)):
                    raise FileExistsError(errno.EEXIST, "it is there with other content")
        self.faults.after_write(name)

    def create_once(self, name: str, content: bytes) -> bool:
        """Write a new file; False, and nothing changed, if it exists."""
        with self._explained("write", name):
            if self.is_local:
                return local_files.create(Path(self.path(name)), content, lambda: self.faults.during_write(name))
            return self._create_remote(name, content)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file, whether or not it exists."""
        self.faults.before_write(name)
        with self._explained("write", name):
            if self.is_local:
                local_files.replace(Path(self.path(name)), content, lambda: self.faults.during_write(name))
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

    def size_bytes(self, name: str) -> int:
        """How large a file is; 0 if it is not there."""
        with self._explained("look up", name):
            try:
                return int(self.filesystem.size(self.path(name)) or 0)
            except FileNotFoundError:
                return 0

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        with self._explained("look up", name):
            self.filesystem.invalidate_cache()
            return bool(self.filesystem.exists(self.path(name)))

    def names(self, folder: str) -> list[str]:
        """The files in a folder, sorted; a folder that is not there has none. Unfinished writes are left out."""
        with self._explained("list", folder):
            try:
                found = self._listed_locally(folder) if self.is_local else self._listed_remotely(folder)
            except FileNotFoundError:
                return []
        files = [entry["name"].rsplit("/", 1)[-1] for entry in found if entry["type"] == "file"]
        return sorted(f"{folder}/{name}" for name in files if not name.startswith("."))

    def remove(self, name: str) -> None:
        """Delete a file that may be gone already."""
        self.faults.before_write(name)
        with self._explained("delete", name), contextlib.suppress(FileNotFoundError):
            self.filesystem.rm_file(self.path(name))

    def remove_later(self, name: str) -> None:
        """Delete a file that nobody needs, in the background and after those named before; what went wrong is told later."""
        while self._removing and self._removing[0].done():
            self._removing.popleft().result()
        if self._remover is None:
            self._remover = ThreadPoolExecutor(1, "resurge-remover")
        self._removing.append(self._remover.submit(self.remove, name))

    def flush(self) -> None:
        """Wait until everything is deleted that is to be."""
        while self._removing:
            self._removing.popleft().result()

    def _listed_locally(self, folder: str) -> list[dict[str, Any]]:
        with os.scandir(self.path(folder)) as entries:
            return [{"name": entry.name, "type": "file" if entry.is_file() else "directory"} for entry in entries]

    def _listed_remotely(self, folder: str) -> list[dict[str, Any]]:
        self.filesystem.invalidate_cache()
        return list(self.filesystem.ls(self.path(folder), detail=True))

    def _is_there(self, name: str, content: bytes) -> bool:
        try:
            return self.read(name) == content
        except FileNotFoundError:
            return False

    def _create_remote(self, name: str, content: bytes) -> bool:
        path = self.path(name)
        self._make_remote_folder(path.rsplit("/", 1)[0])
        try:
            if getattr(self.filesystem.pipe_file, "__func__", None) is fsspec.AbstractFileSystem.pipe_file:
                # That one looks first and writes then; the file system's own exclusive mode, if it has one, does not.
                with self.filesystem.open(path, "xb") as file:
                    file.write(content)
            else:
                self.filesystem.pipe_file(path, content, mode="create")
        except (TypeError, ValueError, NotImplementedError) as error:
            raise StorageError(
                f"{self.shown_url} cannot keep a job: its file system ({type(self.filesystem).__name__}) cannot create a file only "
                f"if it is not there ({error}), so that two drivers could own one job; expected a local folder, NFS, S3 with "
                "conditional writes, GCS or Azure: give the job another checkpoint URL"
            ) from error
        except OSError:
            # Servers word it differently that a file is there.
            self.filesystem.invalidate_cache()
            if not self.filesystem.exists(path):
                raise
            return False
        return True

    def _make_remote_folder(self, folder: str) -> None:
        if folder not in self._folders:
            with contextlib.suppress(FileExistsError):
                self.filesystem.makedirs(folder, exist_ok=True)
            self._folders.add(folder)

    @contextlib.contextmanager
    def _explained(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except NoHardLinksError as error:
            raise StorageError(
                f"{self.shown_url} cannot keep a job: {error.strerror}, so that two drivers could own one job; expected a file system "
                "with hard links (FAT, exFAT and some mounted object stores have none): give the job another checkpoint URL"
            ) from error
        except OSError as error:
            raise StorageError(
                f"cannot {action} {self.path(name)}: {error.strerror or error}; nothing was changed: "
                "make room or set its permissions right, then run the same command again"
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
