"""One recovery, step by step: who was lost, what was planned, what caught up, which query was back when."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from resurge.telemetry.events import CatchUpFinished, RecoveryPlanned

STEPS_KEPT = 200


@dataclass
class Recovery:
    """From the first loss until every query is back; moments in seconds since 1970."""

    began_s: float
    cause: str
    killed_s: float | None = None
    restarted_s: float | None = None
    lost: list[tuple[float, str, int]] = field(default_factory=list)
    joined: list[tuple[float, str]] = field(default_factory=list)
    plans: list[tuple[float, int, int]] = field(default_factory=list)
    steps: list[CatchUpFinished] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    back_s: dict[str, float] = field(default_factory=dict)
    restore_s: float = 0.0
    catch_up_s: float = 0.0
    ended_s: float | None = None

    def planned(self, event: RecoveryPlanned) -> None:
        """The planner let partitions come back."""
        self.plans.append((event.at_s, len(event.partitions), len(event.queries)))

    def stepped(self, event: CatchUpFinished) -> None:
        """Partitions that were behind took a step."""
        self.restore_s += event.restore_s
        self.catch_up_s += max(0.0, event.took_s - event.restore_s)
        self.steps = [*self.steps[-STEPS_KEPT + 1 :], event]

    def went_down(self, queries: Iterable[str]) -> None:
        """These queries are down."""
        names = set(queries)
        self.failed |= names
        for name in names:
            self.back_s.pop(name, None)

    def came_back(self, queries: Iterable[str], at_s: float) -> None:
        """These queries are live; the recovery ends with the last one that failed."""
        for name in self.failed.intersection(queries):
            self.back_s.setdefault(name, at_s)
        if self.failed and len(self.back_s) == len(self.failed):
            self.ended_s = max(self.back_s.values())
