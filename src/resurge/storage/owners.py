"""Whose files these are: a folder is marked with the process it ends with, so that others can remove what the dead left behind."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

OWNER_FILE = ".owner"
PROCESSES = Path("/proc")


class Ancestor(NamedTuple):
    """A process above this one and the arguments it was started with."""

    pid: int
    arguments: list[bytes]


def ancestors() -> Iterator[Ancestor]:
    """This process and those above it; none where the system does not tell."""
    current = os.getpid()
    while current > 1:
        try:
            arguments = (PROCESSES / str(current) / "cmdline").read_bytes().split(b"\0")
            parent = int(_status(current)[1])
        except (OSError, IndexError):
            return
        yield Ancestor(current, arguments)
        current = parent


def _status(pid: int) -> list[str]:
    """The fields of a process's status after its name, which may itself have blanks and brackets."""
    return (PROCESSES / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()


def _identity(pid: int) -> str:
    """A process for ever: machine since its start, namespace of process numbers, number, and start time."""
    boot = (PROCESSES / "sys/kernel/random/boot_id").read_text().strip()
    namespace = (PROCESSES / "self/ns/pid").readlink()
    return f"{boot} {namespace} {pid} {_status(pid)[19]}"


def mark_owner(folder: Path) -> None:
    """Note that a folder ends with the executor that this process works for: the nearest JVM above it, else itself."""
    jvms = [a.pid for a in ancestors() if a.arguments and Path(os.fsdecode(a.arguments[0])).name == "java"]
    try:
        identity = _identity(jvms[0] if jvms else os.getpid())
        (folder / OWNER_FILE).write_text(identity)
    except (OSError, IndexError):
        # Without /proc nobody can tell whether an owner lives; then nothing is removed.
        return


def is_orphaned(folder: Path) -> bool:
    """True if the process that a folder ends with has ended; False if that cannot be told from here."""
    try:
        boot, namespace, pid, _ = known = (folder / OWNER_FILE).read_text().split()
        here = _identity(os.getpid()).split()
    except (OSError, ValueError, IndexError):
        return False
    if [boot, namespace] != here[:2]:
        # Another machine or container, whose processes cannot be seen from here, shares the folder.
        return False
    try:
        return _identity(int(pid)).split() != known or _status(int(pid))[0] == "Z"
    except (OSError, IndexError):
        return True


def remove_orphans(root: Path, pattern: str) -> None:
    """Remove the folders two levels below a root whose owners have ended, and parents that are empty then."""
    for parent in root.glob(pattern):
        for folder in [*parent.glob("*/")]:
            if is_orphaned(folder):
                shutil.rmtree(folder, ignore_errors=True)
        try:
            parent.rmdir()
        except OSError:
            continue
