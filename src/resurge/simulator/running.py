"""Jobs that run in virtual time, and when a driver ends by itself."""

from collections.abc import Callable
from dataclasses import dataclass, field

from resurge.model.work import Job
from resurge.simulator.world import Outcome


@dataclass
class Running:
    """A job on its way: what it will have written, when it ends if nothing happens, and whether it has ended."""

    job: Job
    outcome: Outcome
    started_s: float
    ends_s: float
    restore_s: float
    is_ended: bool = False


@dataclass
class Doomed:
    """When a driver ends by itself: after so many more commands, if it is to end at all."""

    commands_left: int | None = None
    then: Callable[[], None] = field(default=lambda: None)
