"""Result files: what was measured, with the commit, machine, date and command line it was measured with."""

import json
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from resurge.errors import JobError

DEFAULT_FOLDER = Path("out/bench")
MEASURED_WITH = ("resurge", "pyspark", "polars", "pyarrow", "numpy")
NOT_MEASURED = (":!/benchmarks", ":!/docs", ":!/*.md")
"""What a measurement itself rewrites: results, pictures and the documents that quote them."""


def provenance(arguments: list[str] | None = None) -> dict[str, Any]:
    """Commit, machine, date, versions and command line of a measurement that ends now."""
    given = sys.argv[1:] if arguments is None else arguments
    return {
        "command": shlex.join(["resurge", *given]),
        "commit": commit(),
        "source_tree": source_tree(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {name: version(name) for name in MEASURED_WITH},
    }


def commit() -> str:
    """The checked-out commit, marked where anything but results and documents is not committed; "unknown" outside a checkout."""
    here = Path(__file__).parent
    head = _git(here, "rev-parse", "--short=12", "HEAD")
    if head is None:
        return "unknown"
    changed = _git(here, "status", "--porcelain", "--", ":/", *NOT_MEASURED)
    return f"{head} with uncommitted changes" if changed else head


def source_tree() -> str:
    """The id of the folder of sources at the checked-out commit: it stays the same when commits are rebased or squashed."""
    return _git(Path(__file__).parent, "rev-parse", "--short=12", "HEAD:src") or "unknown"


def machine() -> str:
    """Cores, memory, system, Python and Java of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}, {_java()}"


def keep(results: dict[str, Any], path: Path, arguments: list[str] | None = None) -> None:
    """Write a result file: where the figures come from, then the figures."""
    content = json.dumps(provenance(arguments) | results, indent=2) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    except OSError as error:
        raise JobError(f"cannot write the result file {path}: {error.strerror}; name another with --out FILE") from error


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else "java"
    try:
        told = subprocess.run([command, "-version"], capture_output=True, text=True, check=False, timeout=20).stderr
    except (OSError, subprocess.TimeoutExpired):
        return "no Java"
    return "Java " + told.split('"')[1] if '"' in told else "Java"
