"""Go back to the checkpoint before, when a file of the newest one is found to be damaged as a node restores it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from resurge.errors import CheckpointDamagedError
from resurge.runtime.driver.catching_up import CatchingUp
from resurge.runtime.driver.resume import resumption
from resurge.storage.journal import CheckpointRefused

if TYPE_CHECKING:
    from resurge.runtime.driver.engine import Engine

FLIGHT_S = 30.0
Done = TypeVar("Done")


def undamaged(engine: "Engine", act: Callable[[], Done]) -> Done:
    """Act; if a file of the checkpoint is damaged, recover every partition from the checkpoint before, and act again."""
    while True:
        try:
            return act()
        except CheckpointDamagedError as error:
            _go_back(engine, str(error))


def _go_back(engine: "Engine", reason: str) -> None:
    """Log that the checkpoint is not to be used, and begin as a restarted driver would, which knows nothing of its nodes."""
    newest = engine.checkpoints.published[-1]
    engine.behind.wait(FLIGHT_S)
    engine.journal.append(CheckpointRefused(newest.epoch, newest.manifest, reason))
    found, before = resumption(engine.store, engine.journal.records()), engine.facts
    engine.pending, engine.asked, engine.behind = None, None, CatchingUp(engine)
    engine.versions.forget_all()
    engine.resume(found)
    engine.story.resumed(engine.ledger, before, engine.facts, found.warnings)
