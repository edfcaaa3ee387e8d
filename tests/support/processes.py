"""Processes that tests start, watch and kill; every one is ended by its pid."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def process(*arguments: str, log: Path, cwd: Path = ROOT) -> Iterator[subprocess.Popen[bytes]]:
    """A Python module run in a process group of its own, which is gone afterwards."""
    with log.open("ab") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=cwd,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield started
    finally:
        kill_group(started)


def kill_group(started: subprocess.Popen[bytes]) -> None:
    """kill -9 for a process and everything it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 120) -> None:
    """Wait for a condition, or fail saying what was waited for."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s} s for {what}")
        time.sleep(0.01)
