"""CPU time of tasks, beside threads in the background of their process."""

import time

from resurge.runtime.worker.cpu_clock import in_background, task_cpu_s

BUSY_S = 0.3


def busy() -> None:
    """Take CPU time, on this thread."""
    until_s = time.thread_time() + BUSY_S
    while time.thread_time() < until_s:
        pass


def test_what_a_thread_in_the_background_takes_is_no_tasks() -> None:
    """While it runs, and after its end."""
    began_s, began_process_s = task_cpu_s(), time.process_time()
    thread = in_background(busy, "test")
    while time.process_time() < began_process_s + BUSY_S / 2:
        time.sleep(0.01)
    assert task_cpu_s() - began_s < BUSY_S / 4
    thread.join()
    assert time.process_time() - began_process_s >= BUSY_S
    assert task_cpu_s() - began_s < BUSY_S / 3


def test_what_the_tasks_own_thread_takes_counts() -> None:
    """The CPU time of the caller."""
    began_s = task_cpu_s()
    busy()
    assert task_cpu_s() - began_s >= BUSY_S * 0.9
