"""One failure of a study, on a real cluster or a simulated one."""

from dataclasses import dataclass

ANYWHERE, UPSTREAM, DOWNSTREAM = "anywhere", "upstream", "downstream"
"""Where in the topology nodes die: any of them, those that hold its upper end first, or those that do not."""


@dataclass(frozen=True)
class FailureCase:
    """One run: the strategy, how many nodes die and where, and when replacements start after the first of them.

    `gap_s` is the time between two kills; 0 kills at once.
    """

    name: str
    strategy: str
    kill: int
    arrivals_s: tuple[float, ...]
    place: str = ANYWHERE
    gap_s: float = 0.0
