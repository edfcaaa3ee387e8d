"""A folder of Parquet files in which a reader only ever sees committed epochs."""

import errno
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import polars as pl

from resurge.connectors import local_files
from resurge.connectors.contracts import JobReference, Sink, StagedPart, refuse_other_job
from resurge.connectors.local_files import NoHardLinksError
from resurge.connectors.locations import filesystem, is_local, plain_location
from resurge.errors import SinkError

STAGING = "_staging"
OWNER_FILE = "_owner.json"
STAGED_SUFFIX = ".parquet.staged"
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,119}")


class Owner(msgspec.Struct, frozen=True):
    """Whose output a folder holds, as its owner file says."""

    query: str
    job: JobReference


class _Folder(Protocol):
    """What the sink asks of a file system; every path is below the sink's own."""

    def create(self, path: str, content: bytes) -> None:
        """Write a file, unless it is there."""

    def write(self, path: str, content: bytes) -> None:
        """Write a file so that it survives a crash of the machine."""

    def read(self, path: str) -> bytes | None:
        """A file's content, or None."""

    def move(self, source: str, target: str) -> None:
        """Show a file under its final name, whole or not at all."""

    def exists(self, path: str) -> bool:
        """Whether a file is there."""

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""

    def names(self, path: str) -> list[str]:
        """The files of a folder; none if it is missing."""


@dataclass(frozen=True)
class ParquetSink(Sink):
    """Writes `<path>/epoch=<epoch>/<part>.parquet`, staged first as `<path>/_staging/<epoch>.<attempt>.<part>.parquet.staged`.

    One path belongs to one query of one job, as `<path>/_owner.json` says, unless folder_per_query gives each its own subfolder. A part without rows has no file.
    On this machine a file appears by atomic rename; on an object store by a copy, which such stores show only when whole.
    """

    path: str | os.PathLike[str]
    folder_per_query: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", plain_location(self.path))

    def open(self, query: str, schema: pl.Schema, job: JobReference) -> None:
        root, folder = self._root(query), self._folder()
        with _clear_errors(f"write to {root}"):
            probe = f"{root}/{STAGING}/probe"
            folder.write(probe, b"")
            folder.remove(probe)
            self._take_ownership(Owner(query, job), root, folder)

    def stage(self, query: str, epoch: int, part: str, attempt: str, frame: pl.DataFrame) -> StagedPart:
        for name, what in ((part, "a part"), (attempt, "an attempt")):
            _safe(name, what)
        if not frame.height:
            return StagedPart(query, int(epoch), part, 0)
        name = f"{int(epoch)}.{attempt}.{part}{STAGED_SUFFIX}"
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        path = f"{self._root(query)}/{STAGING}/{name}"
        with _clear_errors(f"stage {path}"):
            self._folder().write(path, buffer.getvalue())
        return StagedPart(query, int(epoch), part, frame.height, location=name)

    def publish(self, parts: Sequence[StagedPart]) -> None:
        for part in parts:
            if part.location is not None:
                self._publish_one(part)

    def discard(self, parts: Sequence[StagedPart]) -> None:
        for part in parts:
            if part.location is not None:
                with _clear_errors(f"remove what was staged for {part.query}"):
                    self._folder().remove(self._staged(part))

    def clean(self, query: str, committed_epoch: int) -> None:
        """Remove what was staged after the committed epoch, and what of a committed epoch is shown already."""
        root, folder = self._root(query), self._folder()
        with _clear_errors(f"clean {root}/{STAGING}"):
            for name in folder.names(f"{root}/{STAGING}"):
                epoch, _, part = name.removesuffix(STAGED_SUFFIX).split(".") if _is_staged_name(name) else ("", "", "")
                if epoch and (int(epoch) > committed_epoch or folder.exists(f"{root}/epoch={epoch}/{part}.parquet")):
                    folder.remove(f"{root}/{STAGING}/{name}")

    def _publish_one(self, part: StagedPart) -> None:
        folder, staged = self._folder(), self._staged(part)
        shown = f"{self._root(part.query)}/epoch={int(part.epoch)}/{_safe(part.part, 'a part')}.parquet"
        with _clear_errors(f"publish {shown}"):
            if folder.exists(shown):
                folder.remove(staged)
                return
            if not folder.exists(staged):
                raise SinkError(
                    f"{shown} cannot be published: {staged} is gone; expected the {part.rows} rows staged there: "
                    "restore that file, or start the job in a new folder"
                )
            folder.move(staged, shown)

    def _staged(self, part: StagedPart) -> str:
        if part.location is None or not _is_staged_name(part.location):
            raise SinkError(f"a staged part is at {part.location!r}; expected a file name as `stage` makes it")
        return f"{self._root(part.query)}/{STAGING}/{part.location}"

    def _take_ownership(self, wanted: Owner, root: str, folder: "_Folder") -> None:
        """Two queries or two jobs in one folder would mix, or hide each other's epochs: the first one owns it."""
        path = f"{root}/{OWNER_FILE}"
        if folder.read(path) is None:
            if any(name.startswith("epoch=") for name in folder.names(root)):
                raise SinkError(
                    f"{root} has output, but no {OWNER_FILE} says of which job; {wanted.job} needs a folder of its own: "
                    "give the sink another path, or move the epoch=... folders away"
                )
            folder.create(path, msgspec.json.encode(wanted))
        # Read back what is there: of two jobs that begin at the same time, the file names one.
        try:
            owner = msgspec.json.decode(folder.read(path) or b"", type=Owner)
        except msgspec.DecodeError as error:
            raise SinkError(
                f"{path} is damaged ({error}); expected the query and job that write here: restore it, or give the sink another path"
            ) from error
        refuse_other_job(
            root, owner.job, wanted.job, "give the sink another path, or remove the folder if its rows are not needed"
        )
        if owner.query != wanted.query:
            raise SinkError(
                f"{root} belongs to query {owner.query!r}, but query {wanted.query!r} also writes there: give it another path, "
                "or give both folder_per_query=True"
            )

    def _root(self, query: str) -> str:
        return f"{self.path}/{_safe(query, 'a query')}" if self.folder_per_query else str(self.path)

    def _folder(self) -> _Folder:
        return _LocalFolder() if is_local(str(self.path)) else _RemoteFolder(filesystem(str(self.path)))


def _safe(name: Any, what: str) -> str:
    if not isinstance(name, str) or _SAFE_NAME.fullmatch(name) is None:
        raise SinkError(
            f"{what} is called {name!r}; expected 1 to 120 letters, digits, '_' or '-', beginning with a letter or digit: "
            "it becomes part of a file name"
        )
    return name


def _is_staged_name(name: str) -> bool:
    fields = name.removesuffix(STAGED_SUFFIX).split(".")
    return (
        name.endswith(STAGED_SUFFIX)
        and len(fields) == 3
        and fields[0].isdigit()
        and all(_SAFE_NAME.fullmatch(field) for field in fields)
    )


@contextmanager
def _clear_errors(action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "the disk is full: make room" if full else "make the folder writable"
        raise SinkError(
            f"could not {action}: {error}; nothing of it is visible; {remedy} and run the same command again"
        ) from error


class _LocalFolder:
    def create(self, path: str, content: bytes) -> None:
        try:
            local_files.create(Path(path), content)
        except NoHardLinksError:
            local_files.replace(Path(path), content)

    def write(self, path: str, content: bytes) -> None:
        local_files.replace(Path(path), content)

    def read(self, path: str) -> bytes | None:
        return Path(path).read_bytes() if Path(path).exists() else None

    def move(self, source: str, target: str) -> None:
        local_files.move(Path(source), Path(target))

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def names(self, path: str) -> list[str]:
        return sorted(entry.name for entry in Path(path).iterdir()) if Path(path).is_dir() else []


@dataclass(frozen=True)
class _RemoteFolder:
    file_system: Any

    def create(self, path: str, content: bytes) -> None:
        if not self.exists(path):
            self.write(path, content)

    def write(self, path: str, content: bytes) -> None:
        self.file_system.makedirs(path.rpartition("/")[0], exist_ok=True)
        self.file_system.pipe_file(path, content)

    def read(self, path: str) -> bytes | None:
        return self.file_system.cat_file(path) if self.exists(path) else None

    def move(self, source: str, target: str) -> None:
        self.file_system.makedirs(target.rpartition("/")[0], exist_ok=True)
        self.file_system.mv(source, target)

    def exists(self, path: str) -> bool:
        self.file_system.invalidate_cache()
        return bool(self.file_system.exists(path))

    def remove(self, path: str) -> None:
        if self.exists(path):
            self.file_system.rm_file(path)

    def names(self, path: str) -> list[str]:
        self.file_system.invalidate_cache()
        if not self.file_system.exists(path):
            return []
        return sorted(name.rpartition("/")[2] for name in self.file_system.ls(path, detail=False))
