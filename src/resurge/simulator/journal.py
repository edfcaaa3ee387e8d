"""What survives a driver: the epochs that were planned, what was committed, and the checkpoints. Only its owner may write."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from resurge.coordinator.commands import CatchUpCommit, CheckpointCommit, EpochCommit, EpochPlan, Record
from resurge.errors import SimulationError, StaleGenerationError
from resurge.model.gaps import Gap
from resurge.model.names import Partition
from resurge.protocols.cuts import Cut, Cuts

Parts = tuple[tuple[str, int], ...]
"""Query partitions and epochs, in order."""


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


class Staged(NamedTuple):
    """Output that was logged: the attempt that staged it, and the parts."""

    attempt: str
    parts: Parts


@dataclass
class Journal:
    """What is durable of a job."""

    cuts: Cuts
    planned: dict[int, Planned] = field(default_factory=dict)
    pending: int | None = None
    head: int = 0
    generation: int = 0
    reached_s: float = 0.0
    logged: list[Staged] = field(default_factory=list)
    absent: frozenset[Partition] | None = None
    gaps: Mapping[Partition, Gap] = field(default_factory=dict)
    _published: dict[Partition, int] = field(default_factory=dict)

    def take_over(self) -> int:
        """Begin a new generation; whoever ran the job before can write nothing more."""
        self.generation += 1
        self.absent = None
        return self.generation

    def check_owner(self, generation: int) -> None:
        """Refuse a driver that another one has superseded."""
        if generation != self.generation:
            raise StaleGenerationError(f"generation {generation} writes; expected generation {self.generation}")

    def append(
        self, generation: int, record: Record, parts: Parts, planned: Planned | None, everyone: Iterable[Partition]
    ) -> None:
        """Log a record of the driver that owns the job."""
        self.check_owner(generation)
        if isinstance(record, EpochPlan):
            self._plan(record, planned)
        elif isinstance(record, EpochCommit):
            self._commit_epoch(record, parts, everyone)
        elif isinstance(record, CatchUpCommit):
            self._commit(record.attempt, record.cursors, parts)
        else:
            self._checkpoint(record, frozenset(everyone))

    def _plan(self, record: EpochPlan, planned: Planned | None) -> None:
        if planned is None or record.epoch != self.head + 1 or self.pending is not None:
            raise SimulationError(
                f"epoch {record.epoch} was planned after {self.head}; expected {self.head + 1}, and none pending"
            )
        self.planned[record.epoch] = planned
        self.pending = record.epoch

    def _commit_epoch(self, record: EpochCommit, parts: Parts, everyone: Iterable[Partition]) -> None:
        if record.epoch != self.pending:
            raise SimulationError(f"epoch {record.epoch} was committed; expected the pending one, {self.pending}")
        if record.absent is not None:
            self.absent = frozenset(record.absent)
        absent = self.absent
        if absent is None:
            raise SimulationError(f"epoch {record.epoch} was committed without who was absent; expected a record that says so")
        self._commit(record.attempt, {partition: record.epoch for partition in everyone if partition not in absent}, parts)
        self.head, self.pending = record.epoch, None

    def _commit(self, attempt: str, cursors: Mapping[Partition, int], parts: Parts) -> None:
        for partition, cursor in cursors.items():
            self._published[partition] = max(self._published.get(partition, 0), cursor)
        self.logged.append(Staged(attempt, parts))

    def _checkpoint(self, record: CheckpointCommit, partitions: frozenset[Partition]) -> None:
        """Epochs before the oldest checkpoint in use are never run again; all output so far has been published."""
        self.absent = frozenset(record.absent)
        self.cuts = self.cuts.with_cut(Cut(record.epoch, partitions - frozenset(record.absent)))
        for old in [number for number in self.planned if number <= self.cuts.first]:
            self.reached_s = self.planned.pop(old).end_s
        self.logged.clear()

    def end_s(self) -> float:
        """Up to where the committed epochs have read."""
        newest = self.planned.get(self.head)
        return newest.end_s if newest else self.reached_s

    def published(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The last epoch that each partition's readers have seen, once what is logged has been published."""
        return {partition: max(self.cuts.newest.get(partition, 0), self._published.get(partition, 0)) for partition in partitions}
