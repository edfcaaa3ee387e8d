"""What survives a driver: the epochs that were planned, what was committed, and the last global checkpoint."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from resurge.model.names import Partition

Parts = tuple[tuple[str, int], ...]


class Planned(NamedTuple):
    """An epoch: the stretch of input time that it reads."""

    start_s: float
    end_s: float

    @property
    def arrival_s(self) -> float:
        """Mean arrival time of its rows."""
        return (self.start_s + self.end_s) / 2

    @property
    def span_s(self) -> float:
        """How much input time it covers."""
        return self.end_s - self.start_s


class Commit(NamedTuple):
    """Output that was decided: up to which epoch each of these partitions shows, and the parts."""

    epoch: int
    cursors: Mapping[Partition, int]
    parts: Parts


@dataclass
class Journal:
    """The durable facts of a job."""

    planned: dict[int, Planned] = field(default_factory=dict)
    pending: int | None = None
    head: int = 0
    checkpoint: int = 0
    generation: int = 0
    reached_s: float = 0.0
    newest: Commit | None = None
    _shown: dict[Partition, int] = field(default_factory=dict)

    def plan(self, epoch: int, planned: Planned) -> None:
        """Log what the next epoch reads."""
        self.planned[epoch] = planned
        self.pending = epoch

    def commit(self, commit: Commit) -> None:
        """Log output; the commit before it, of the same driver, has certainly been shown."""
        if self.newest is not None:
            for partition, cursor in self.newest.cursors.items():
                self._shown[partition] = max(self._shown.get(partition, 0), cursor)
        self.newest = commit

    def driver_died(self) -> bool:
        """A driver ended; its newest commit may or may not have been shown (True), unless a checkpoint covers it."""
        is_uncertain = self.newest is not None and self.newest.epoch > self.checkpoint
        self.newest = None
        return is_uncertain

    def epoch_done(self, epoch: int) -> None:
        """The pending epoch is committed."""
        self.head, self.pending = epoch, None

    def checkpointed(self, epoch: int) -> None:
        """Epochs that a checkpoint covers are never run again."""
        self.checkpoint = epoch
        self.reached_s = self.planned[epoch].end_s
        for old in [number for number in self.planned if number <= epoch]:
            self.planned.pop(old)

    def shown(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The last epoch that each partition showed for certain."""
        return {partition: max(self.checkpoint, self._shown.get(partition, 0)) for partition in partitions}
