"""Where files are: plain paths on this machine, or any fsspec URL."""

import glob
import os
import stat
import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from resurge.errors import SourceError

IGNORED_PREFIXES = ("_", ".")
IGNORED_SUFFIXES = (".tmp", ".staged")
FINGERPRINT_BYTES = 65_536
_MODIFIED_FIELDS = ("mtime", "LastModified", "last_modified", "updated", "created")


class FoundFile(NamedTuple):
    """A file as it is now: `version` changes when it is written again."""

    path: str
    size_bytes: int
    modified_s: float
    version: str


def is_local(location: str) -> bool:
    """Whether a location is a plain path."""
    return "://" not in location


def plain_location(location: str | os.PathLike[str]) -> str:
    """A URL as it is, or an absolute path without `..`: executors may have another working directory, and names of files count.

    >>> plain_location("/data/../data/in/*.csv"), plain_location("file:///data"), plain_location("s3://bucket/in")
    ('/data/in/*.csv', '/data', 's3://bucket/in')
    """
    text = os.fspath(location)
    for prefix in ("file://", "local://"):
        text = text.removeprefix(prefix)
    return _absolute(Path(text).expanduser()) if is_local(text) else text


def _absolute(path: Path) -> str:
    """Resolved up to the last `..` only: behind it a link stays the name that the user gave."""
    parts = path.absolute().parts
    last = max((index + 1 for index, part in enumerate(parts) if part == ".."), default=0)
    return str(Path(*parts[:last]).resolve().joinpath(*parts[last:])) if last else str(path.absolute())


def filesystem(location: str) -> Any:
    """The fsspec file system of a URL."""
    import fsspec

    try:
        return fsspec.core.url_to_fs(location)[0]
    except (ImportError, ValueError) as error:
        raise SourceError(f"{location!r} cannot be opened: {error}{missing_package(location)}") from error


def missing_package(location: str) -> str:
    """What to install for a URL of this kind.

    >>> missing_package("s3://bucket/in")
    ": pip install 'resurge[s3]'"
    """
    is_s3 = location.startswith(("s3://", "s3a://"))
    return ": pip install 'resurge[s3]'" if is_s3 else "; install the fsspec package for this kind of URL"


def list_files(location: str) -> list[FoundFile]:
    """All files of a folder or a glob, except hidden, temporary and staged ones, in order of arrival."""
    found = _list_local(location) if is_local(location) else _list_remote(location)
    return sorted(found, key=lambda file: (file.modified_s, file.path))


def stat_file(path: str) -> FoundFile | None:
    """A file as it is now, or None if it is gone."""
    try:
        if is_local(path):
            return _found_local(path, Path(path).stat())
        file_system = filesystem(path)
        file_system.invalidate_cache()
        return _found_remote(path, file_system.info(path))
    except FileNotFoundError:
        return None


def open_file(path: str) -> BinaryIO:
    """A file opened for reading bytes."""
    return Path(path).open("rb") if is_local(path) else cast(BinaryIO, filesystem(path).open(path, "rb"))


def read_bytes(path: str, start: int, end: int) -> bytes:
    """Bytes `start` to `end` of a file."""
    with open_file(path) as file:
        file.seek(start)
        return file.read(end - start)


def fingerprint(file: FoundFile) -> int:
    """A checksum of both ends of a file: tells a copy of the same file from another of the same size."""
    first_end = min(file.size_bytes, FINGERPRINT_BYTES)
    head = read_bytes(file.path, 0, first_end)
    tail = read_bytes(file.path, max(first_end, file.size_bytes - FINGERPRINT_BYTES), file.size_bytes)
    return zlib.crc32(tail, zlib.crc32(head))


def is_glob(location: str) -> bool:
    """Whether a location is a pattern rather than one folder or file."""
    return any(character in location for character in "*?[")


def glob_root(location: str) -> str:
    """The part of a glob before its first pattern."""
    parts = location.split("/")
    fixed = next((index for index, part in enumerate(parts) if is_glob(part)), len(parts))
    return "/".join(parts[:fixed]) or "/"


def _is_ignored(path: str, root: str) -> bool:
    inner = path.removeprefix(root).strip("/")
    if path.endswith(IGNORED_SUFFIXES) or inner.startswith(IGNORED_PREFIXES):
        return True
    return "/" in inner and any(name.startswith(IGNORED_PREFIXES) for name in inner.split("/"))


def _list_local(location: str) -> Iterator[FoundFile]:
    root = glob_root(location)
    if not Path(root).exists():
        raise SourceError(f"{root} does not exist; expected a folder into which files arrive: create it, or correct the path")
    if is_glob(location):
        paths = glob.iglob(location, recursive=True)  # noqa: PTH207 (Path.glob would split off the root)
    else:
        paths = iter([location]) if Path(location).is_file() else (entry.path for entry in os.scandir(location))
    for path in paths:
        if _is_ignored(path, root if path != location else str(Path(location).parent)):
            continue
        try:
            status = os.stat(path)  # noqa: PTH116 (a folder may have very many files, and a Path for each costs more than this)
        except FileNotFoundError:
            continue  # renamed or removed since it was listed
        if not stat.S_ISDIR(status.st_mode):
            yield _found_local(path, status)


def _found_local(path: str, status: os.stat_result) -> FoundFile:
    return FoundFile(path, status.st_size, status.st_mtime_ns / 1e9, str(status.st_mtime_ns))


def _list_remote(location: str) -> Iterator[FoundFile]:
    file_system = filesystem(location)
    file_system.invalidate_cache()
    root = str(file_system._strip_protocol(glob_root(location)))
    try:
        if is_glob(location):
            infos = list(file_system.glob(location, detail=True).values())
        else:
            infos = file_system.ls(location, detail=True)
    except FileNotFoundError as error:
        raise SourceError(
            f"{location} does not exist; expected a folder into which files arrive: create it, or correct it"
        ) from error
    for info in infos:
        single = info["name"] == root
        if info["type"] == "file" and not _is_ignored(info["name"], root.rpartition("/")[0] if single else root):
            yield _found_remote(file_system.unstrip_protocol(info["name"]), info)


def _found_remote(path: str, info: dict[str, Any]) -> FoundFile:
    modified = next((info[name] for name in _MODIFIED_FIELDS if info.get(name) is not None), 0.0)
    modified_s = modified.timestamp() if isinstance(modified, datetime) else _as_number(modified)
    version = info.get("ETag") or info.get("etag") or modified
    return FoundFile(path, int(info["size"]), modified_s, str(version))


def _as_number(modified: Any) -> float:
    if isinstance(modified, str):
        return datetime.fromisoformat(modified).timestamp()
    return float(modified)
