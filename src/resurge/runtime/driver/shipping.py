"""Resurge as an archive, for executors that do not have it."""

import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from resurge.runtime.worker.fitness import code_fingerprint, modules

if TYPE_CHECKING:
    from pyspark import SparkContext

# What Python says when a package is missing, in whichever way it was asked for it.
MISSING = ("No module named 'resurge'", 'No module named "resurge"', "No module named resurge")


def is_missing(error: BaseException | None) -> bool:
    """True if a task failed because its executor has no Resurge."""
    while error is not None:
        if any(sign in str(error) for sign in MISSING):
            return True
        error = error.__cause__
    return False


def ship(context: "SparkContext") -> None:
    """Have every executor fetch this code, and let the Python workers that start from now on find it.

    Files that are added to a session are put into an executor's working folder before its first task. Python workers start in
    that folder, so a relative path leads to it; the daemon that they are forked from needs it too, before Spark tells it of files.
    """
    folder = f"resurge-{code_fingerprint()}"
    # Executors fetch it whenever they join; this folder ends with the session.
    archive = Path(str(context._temp_dir)) / f"{folder}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in modules():
            file.writestr(name, content)
    context.addArchive(f"{archive}#{folder}")
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, context.environment.get("PYTHONPATH", "")]))
