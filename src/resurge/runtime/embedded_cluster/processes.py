"""Processes that belong together: found by a mark that they inherit, killed all at once, and never outliving their owner."""

import contextlib
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import psutil

from resurge.runtime.embedded_cluster.hosts import HostNetwork

MARK = "RESURGE_PROCESS"
GUARD_POLL_S = 0.5
KILL_TIMEOUT_S = 10.0
LOW_PRIORITY = 15
# The kernel counts start times in ticks of its clock, and the time of boot is known to the second only.
START_TOLERANCE_S = 1.0


class ProcessId(msgspec.Struct, frozen=True):
    """A process for ever: a number that the system gives to another process later has another start time."""

    pid: int
    started_s: float

    @staticmethod
    def of(pid: int) -> "ProcessId":
        """The process that has this number now."""
        return ProcessId(pid, float(psutil.Process(pid).create_time()))

    def find(self) -> psutil.Process | None:
        """The process if it runs; None if it ended, is a zombie, or its number belongs to another one."""
        with contextlib.suppress(psutil.Error):
            found = psutil.Process(self.pid)
            is_same = abs(found.create_time() - self.started_s) <= START_TOLERANCE_S
            return found if is_same and is_running(found) else None
        return None


def marked(*prefixes: str) -> list[psutil.Process]:
    """The running processes whose mark starts so: children inherit it with the environment, and orphans keep it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARK, "").startswith(prefixes):
                found.append(process)
    return found


def kill_trees(roots: Iterable[psutil.Process], *prefixes: str) -> None:
    """kill -9 for processes, all they started and all with these marks; returns when they are gone.

    From the top down, so that nobody is left who would start a killed process again. What was started in the meantime, or lost
    its parent, has the mark and is killed in the next round.
    """
    deadline = time.monotonic() + KILL_TIMEOUT_S
    doomed = [process for root in roots for process in _tree(root)] or marked(*prefixes)
    while doomed and time.monotonic() < deadline:
        for process in doomed:
            # psutil compares start times first: a number that was given away is not killed.
            with contextlib.suppress(psutil.Error):
                process.kill()
        _wait_until_gone(doomed, deadline)
        doomed = [process for process in marked(*prefixes) if is_running(process)]


def pause_all(*prefixes: str) -> None:
    """SIGSTOP for all processes with these marks; returns when none of them runs."""
    deadline = time.monotonic() + KILL_TIMEOUT_S
    # What was started before its parent stopped is found in the next round.
    while (awake := [process for process in marked(*prefixes) if _is_awake(process)]) and time.monotonic() < deadline:
        for process in awake:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        time.sleep(0.002)


def resume_all(*prefixes: str) -> None:
    """SIGCONT for all processes with these marks."""
    for process in marked(*prefixes):
        with contextlib.suppress(psutil.Error):
            process.resume()


def start_gently(process: ProcessId) -> None:
    """Give a process that has just started, and all it will start, what others leave; only if that can be undone later."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, 1)
        os.setpriority(os.PRIO_PROCESS, process.pid, 0)
        os.setpriority(os.PRIO_PROCESS, process.pid, LOW_PRIORITY)


def equalise(*prefixes: str) -> None:
    """Usual priority for all threads of all processes with these marks."""
    for process in marked(*prefixes):
        # A process that ended meanwhile needs none.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PGRP, os.getpgid(process.pid), 0)


def _is_awake(process: psutil.Process) -> bool:
    try:
        return is_running(process) and process.status() != psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def _tree(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return [root]


def _wait_until_gone(processes: Iterable[psutil.Process], deadline: float) -> None:
    for process in processes:
        while is_running(process) and time.monotonic() < deadline:
            time.sleep(0.002)


def is_running(process: psutil.Process) -> bool:
    """Whether a process does anything yet; one that only waits for its parent to take note of its end does not."""
    try:
        # The first thread of a killed JVM is a zombie while others still hold files and ports.
        return bool(process.is_running()) and (process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1)
    except psutil.Error:
        return False


class Guardian:
    """A small process that kills everything with a mark as soon as its owner closes it or ends, in whatever way."""

    def __init__(self, prefix: str, temporary: Path | None, network: str | None = None) -> None:
        # Not PR_SET_PDEATHSIG: that follows the thread that started a process, and nodes are added from threads that end.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(os.getpid()), prefix, str(temporary or ""), network or ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process that watches."""
        return self._process.pid

    def close(self) -> None:
        """Have it clean up and end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def guard(owner: int, prefix: str, temporary: str, network: str) -> None:
    """Wait for the end of standard input or of the owner, then kill what has the mark, and remove its folder and network."""
    # Both: a child that the owner forked may hold the other end of the pipe open after the owner's end.
    while os.getppid() == owner and not select.select([sys.stdin], [], [], GUARD_POLL_S)[0]:
        pass
    if os.getppid() != owner:
        # A process that was being started when the owner ended shows its mark only now.
        time.sleep(GUARD_POLL_S)
    kill_trees([], prefix)
    if network:
        HostNetwork(network).remove()
    if temporary:
        shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    guard(int(sys.argv[1]), *sys.argv[2:5])
