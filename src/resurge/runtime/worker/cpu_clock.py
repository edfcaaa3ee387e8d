"""The CPU time of tasks: that of their process, without what threads in the background of it take."""

import contextlib
import os
import threading
import time
from collections.abc import Callable

LESS_URGENT = 5
"""What the threads in the background add to their nice value, so that they take the processor from nobody who works on an epoch."""


class _Background:
    """The CPU time of the threads in the background of this process: of those that live, and of those that have ended."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clocks: dict[int, int] = {}
        self.ended_s = 0.0

    def cpu_s(self) -> float:
        """What they have taken so far."""
        with self.lock:
            return self.ended_s + sum(map(time.clock_gettime, self.clocks.values()))

    def run(self, work: Callable[[], None]) -> None:
        """Do the work of a thread."""
        me = threading.get_ident()
        with contextlib.suppress(OSError, AttributeError):
            # On Linux each thread has a nice value of its own.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LESS_URGENT)
        with self.lock:
            self.clocks[me] = time.pthread_getcpuclockid(me)
        try:
            work()
        finally:
            # A clock can be read only while its thread lives, so it goes before the thread ends.
            with self.lock:
                self.ended_s += time.clock_gettime(self.clocks.pop(me))


_BACKGROUND = _Background()


def task_cpu_s() -> float:
    """The CPU time that this process has taken so far for its tasks."""
    background_s = _BACKGROUND.cpu_s()
    return time.process_time() - background_s


def in_background(work: Callable[[], None], name: str) -> threading.Thread:
    """Start a thread whose CPU time is no task's."""
    thread = threading.Thread(target=_BACKGROUND.run, args=(work,), name=name, daemon=True)
    thread.start()
    return thread
