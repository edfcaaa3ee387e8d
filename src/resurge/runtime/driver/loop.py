"""When epochs are run and when partitions catch up: live epochs at their interval, bounded steps in between."""

import time
from typing import TYPE_CHECKING

from resurge.protocols.epoch import wait_s

if TYPE_CHECKING:
    from resurge.runtime.driver.engine import Engine

POLL_S = 0.1


def run(engine: "Engine", epochs: int | None, *, until_idle: bool, drain: bool) -> None:
    """Run until stopped, for a number of epochs, or until there is no input; then, if asked, close all windows."""
    done = 0
    interval_s = 0.0 if until_idle else engine.options.interval_s
    while not engine.stopping.is_set() and (epochs is None or done < epochs):
        began = time.monotonic()
        if engine.step():
            done += 1
        elif engine.catching_up():
            # There is no input: nobody waits for the next epoch.
            engine.catch_up()
        elif until_idle:
            break
        fill(engine, began, 0.0 if engine.is_full else interval_s)
    if until_idle or drain:
        finish_recovery(engine)
    if drain and not engine.stopping.is_set():
        engine.step(drain=True)
        finish_recovery(engine)


def fill(engine: "Engine", began: float, interval_s: float) -> None:
    """Until the next epoch is due: catch up in bounded steps, else wait; at least one step if live epochs carry none."""
    while not engine.stopping.is_set():
        left = wait_s(began, time.monotonic(), interval_s)
        has_stepped = engine.catching_up() and engine.catch_up(left)
        if not has_stepped and left > 0:
            engine.stopping.wait(min(left, POLL_S))
        engine.observe()
        left = wait_s(began, time.monotonic(), interval_s)
        if left <= 0 or engine.behind.is_early(left):
            return


def finish_recovery(engine: "Engine") -> None:
    """Wait until everything is live again."""
    while not engine.facts.is_whole and not engine.stopping.is_set():
        engine.wait_for_nodes()
        if engine.catching_up():
            engine.catch_up()
        else:
            engine.stopping.wait(POLL_S)
        engine.observe()
