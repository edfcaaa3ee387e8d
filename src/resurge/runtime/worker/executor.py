"""Which executor a Python process belongs to, on every cluster manager."""

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROCESSES = Path("/proc")
_FLAG = b"--executor-id"


class Ancestor(NamedTuple):
    """A process above this one and the arguments it was started with."""

    pid: int
    arguments: list[bytes]


def ancestors(pid: int | None = None) -> Iterator[Ancestor]:
    """This process and those above it; none where the system does not tell."""
    current = os.getpid() if pid is None else pid
    while current > 1:
        try:
            arguments = (PROCESSES / str(current) / "cmdline").read_bytes().split(b"\0")
            # The second field is the name in brackets, which may itself have blanks and brackets.
            status = (PROCESSES / str(current) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return
        yield Ancestor(current, arguments)
        current = int(status[1])


@functools.cache
def executor_id() -> str | None:
    """The executor that this process belongs to, None if that cannot be told.

    Spark tells Python workers neither on YARN nor on a standalone cluster. But everywhere an executor is a process that was
    started with its id as an argument, and Python runs below it. Kubernetes also sets a variable. Without /proc there is the
    name of a standalone executor's work folder.
    """
    return _from_arguments() or os.environ.get("SPARK_EXECUTOR_ID") or _from_folder(Path.cwd())


def _from_arguments() -> str | None:
    for ancestor in ancestors():
        if _FLAG in ancestor.arguments[:-1]:
            return ancestor.arguments[ancestor.arguments.index(_FLAG) + 1].decode()
    return None


def _from_folder(folder: Path) -> str | None:
    return folder.name if folder.parent.name.startswith("app-") and folder.name.isdigit() else None
