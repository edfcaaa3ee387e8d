"""The epochs since the last global checkpoint, as the journal has them: what each read, and its watermarks."""

from dataclasses import dataclass, field

from resurge.model.names import Partition
from resurge.runtime.driver.sources import Sources
from resurge.runtime.worker.messages import EpochWork, Split
from resurge.storage.journal import CatchUpCommitted, EpochCommitted, EpochPlanned, Record

END_OF_TIME_US = 2**62


@dataclass
class Ledger:
    """Every past epoch that may have to be run again."""

    sources: Sources
    planned: dict[int, EpochPlanned] = field(default_factory=dict)
    closing_us: dict[int, dict[str, int]] = field(default_factory=dict)

    def work(self, epoch: int, *, is_published: bool) -> EpochWork:
        """An epoch to run: its watermarks, and whether queries of the sources themselves publish it."""
        planned = self.planned[epoch]
        closing = dict.fromkeys(self.sources.readers, END_OF_TIME_US) if planned.drain else self.closing_us.get(epoch)
        return EpochWork(epoch, planned.watermarks_us, closing, is_published, planned.plan)

    def splits(self, epoch: int) -> list[Split]:
        """What an epoch reads."""
        return self.sources.splits(self.planned[epoch])

    def forget_before(self, epoch: int) -> None:
        """Epochs that a checkpoint covers are never run again."""
        for old in [number for number in self.planned if number < epoch]:
            self.planned.pop(old)
            self.closing_us.pop(old, None)


def shown_epochs(partitions: list[Partition], records: list[Record], checkpoint: int) -> tuple[dict[Partition, int], int]:
    """The last epoch that each partition showed, and that the sources' own queries did.

    What is committed counts as shown: a driver that starts first shows the newest commit's parts again, from where they lie.
    """
    shown = dict.fromkeys(partitions, checkpoint)
    by_sources = checkpoint
    for record in records:
        if isinstance(record, CatchUpCommitted) and record.epoch > checkpoint:
            for name, cursor in record.cursors.items():
                shown[Partition.parse(name)] = max(shown[Partition.parse(name)], cursor)
        elif isinstance(record, EpochCommitted) and record.epoch > checkpoint:
            absent = {Partition.parse(name) for name in record.absent}
            for partition in partitions:
                if partition not in absent:
                    shown[partition] = max(shown[partition], record.epoch)
            by_sources = max(by_sources, record.epoch)
    return shown, by_sources
