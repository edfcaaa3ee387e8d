"""The epochs since the last global checkpoint, as the journal has them: what each read, and its watermarks."""

from dataclasses import dataclass, field

from resurge.model.names import KeyGroup, Partition
from resurge.runtime.driver.sources import Sources
from resurge.runtime.storage.journal import CatchUpCommitted, DriverStarted, EpochCommitted, EpochPlanned, Record
from resurge.runtime.worker.messages import EpochWork, Split

END_OF_TIME_US = 2**62


@dataclass
class Ledger:
    """Every past epoch that may have to be run again."""

    sources: Sources
    planned: dict[int, EpochPlanned] = field(default_factory=dict)
    closing_us: dict[int, dict[str, int]] = field(default_factory=dict)
    shown_by_sources: int = 0

    def work(self, epoch: int) -> EpochWork:
        """An epoch to run: its watermarks, and whether queries of the sources themselves show it."""
        planned = self.planned[epoch]
        closing = dict.fromkeys(self.sources.readers, END_OF_TIME_US) if planned.drain else self.closing_us.get(epoch)
        return EpochWork(epoch, planned.watermarks_us, closing, epoch > self.shown_by_sources, planned.plan)

    def splits(self, epoch: int) -> list[Split]:
        """What an epoch reads."""
        return self.sources.splits(self.planned[epoch])

    def arrival_s(self, epoch: int) -> float:
        """Mean arrival time of an epoch's rows."""
        return self.planned[epoch].arrival_s

    def forget_before(self, epoch: int) -> None:
        """Epochs that a checkpoint covers are never run again."""
        for old in [number for number in self.planned if number < epoch]:
            self.planned.pop(old)
            self.closing_us.pop(old, None)


def shown_epochs(partitions: list[Partition], records: list[Record], checkpoint: int) -> tuple[dict[Partition, int], int]:
    """The last epoch that each partition showed for certain, and that the sources' own queries did.

    Each driver's newest commit may have been logged without its output having been shown, so it is not counted: showing it
    again is harmless, because sinks show a part once. Later drivers do not make it certain: one that had no room for a
    partition committed epochs without it, and showed nothing of it.
    """
    shown = dict.fromkeys(partitions, checkpoint)
    by_sources = checkpoint
    for record in _shown_for_certain(records, checkpoint):
        if isinstance(record, CatchUpCommitted):
            for name, cursor in record.cursors.items():
                shown[_partition(name)] = max(shown[_partition(name)], cursor)
        else:
            absent = {_partition(name) for name in record.absent}
            for partition in partitions:
                if partition not in absent:
                    shown[partition] = max(shown[partition], record.epoch)
            by_sources = max(by_sources, record.epoch)
    return shown, by_sources


def _shown_for_certain(records: list[Record], checkpoint: int) -> list[EpochCommitted | CatchUpCommitted]:
    """The commits after a checkpoint that were followed by another commit of the same driver."""
    certain: list[EpochCommitted | CatchUpCommitted] = []
    newest: EpochCommitted | CatchUpCommitted | None = None
    for record in records:
        if isinstance(record, DriverStarted):
            newest = None
        elif isinstance(record, EpochCommitted | CatchUpCommitted) and record.epoch > checkpoint:
            if newest is not None:
                certain.append(newest)
            newest = record
    return certain


def _partition(name: str) -> Partition:
    operator, group = name.rsplit("/", 1)
    return Partition(operator, KeyGroup(int(group)))
