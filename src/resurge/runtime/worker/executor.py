"""Which executor a Python process belongs to, on every cluster manager."""

import functools
import os
from pathlib import Path

from resurge.storage.owners import ancestors

_FLAG = b"--executor-id"


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
