"""A job with a user beside it: somebody who watches it run, asks it for moves and drains, and stops it."""

import threading
import time
from collections.abc import Callable

from resurge.errors import JobError
from resurge.model.requests import Answer, Drain, Move, Verdict
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.storage.durable import DurableStore
from resurge.storage.requests import carried_out

LOOK_S = 0.02


def run_beside(engine: Engine, user: Callable[[], None]) -> None:
    """Run a job until its user, in a thread beside it, is done; what fails there is raised."""
    failures: list[Exception] = []

    def act() -> None:
        try:
            user()
        except Exception as error:
            failures.append(error)
        engine.stop()

    acting = threading.Thread(target=act, daemon=True)
    acting.start()
    run_until_done(engine)
    acting.join()
    if failures:
        raise failures[0]


def asked(engine: Engine, wanted: Move | Drain, timeout_s: float) -> Answer:
    """Ask a running job for something, as `resurge move` and `drain` do; refuse to go on if it is not done."""
    answer = carried_out(DurableStore(engine.store.url), engine.journal.generation, wanted, timeout_s)
    if answer.verdict is not Verdict.DONE:
        raise JobError(f"the request {wanted.request!r} was {answer.verdict.value}: {answer.text}")
    return answer


def wait_until(is_true: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Look again and again, for some time at most."""
    deadline_s = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline_s:
            raise JobError(f"waited {timeout_s:g} s for {what}; expected it by then: is the machine too busy?")
        time.sleep(LOOK_S)
