"""Files on this machine that are whole or not there, created once, and still there after a loss of power."""

import contextlib
import errno
import filecmp
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class NoHardLinksError(OSError):
    """The file system has no hard links, by which a file is created whole and only once."""


def create(path: Path, content: bytes, during_write: Callable[[], None] = lambda: None) -> bool:
    """Write a new file; False, and nothing changed, if it exists."""
    if path.exists():
        return False
    with _temporary(path, during_write) as (temporary, file):
        file.write(content)
        _sync(file)
        return _linked(temporary, path)


@contextlib.contextmanager
def creating(path: Path, during_write: Callable[[], None] = lambda: None) -> Iterator[Callable[[bytes | memoryview], object]]:
    """A new file that is written piece by piece and is there once it is whole; one with the same content may be there."""
    with _temporary(path, during_write) as (temporary, file):
        yield file.write
        _sync(file)
        if not _linked(temporary, path) and not filecmp.cmp(temporary, path, shallow=False):
            raise FileExistsError(errno.EEXIST, "it is there with other content", str(path))


def replace(path: Path, content: bytes, during_write: Callable[[], None] = lambda: None) -> None:
    """Write a file, whether or not it exists."""
    with _temporary(path, during_write) as (temporary, file):
        file.write(content)
        _sync(file)
        temporary.replace(path)
    fsync_folder(path.parent)


def move(source: Path, target: Path) -> None:
    """Give a file another name."""
    make_folder(target.parent)
    source.rename(target)
    fsync_folder(target.parent)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "it is a file, not a folder", str(folder))
    fsync_folder(folder.parent)


def fsync_folder(folder: Path) -> None:
    """A new name in a folder survives a loss of power only once the folder is on disk too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _temporary(path: Path, during_write: Callable[[], None]) -> Iterator[tuple[Path, BinaryIO]]:
    """A file beside the one that is to be, which is not left behind."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with temporary.open("xb") as file:
            during_write()
            yield temporary, file
    finally:
        temporary.unlink(missing_ok=True)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _linked(temporary: Path, path: Path) -> bool:
    """Give a file that is whole its name; False if another file has it."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        # A network file system may have repeated a request that had succeeded: then the file is ours.
        if not os.path.samestat(temporary.stat(), path.stat()):
            return False
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise NoHardLinksError(error.errno, f"the file system of {path.parent} has no hard links") from error
        raise
    fsync_folder(path.parent)
    return True
