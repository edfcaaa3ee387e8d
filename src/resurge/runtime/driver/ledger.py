"""The epochs since the oldest checkpoint in use, as the journal has them: what each read, and its watermarks."""

from dataclasses import dataclass, field

from resurge.errors import CorruptFileError
from resurge.model.names import Partition
from resurge.protocols.cuts import Cuts
from resurge.runtime.driver.sources import Sources
from resurge.runtime.worker.messages import EpochWork, Split
from resurge.storage.journal import CatchUpCommitted, CheckpointPublished, EpochCommitted, EpochPlanned, Record

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
        """Epochs before those that follow the oldest checkpoint in use are never run again."""
        for old in [number for number in self.planned if number < epoch]:
            self.planned.pop(old)
            self.closing_us.pop(old, None)


def shown_epochs(partitions: list[Partition], records: list[Record], cuts: Cuts) -> tuple[dict[Partition, int], int]:
    """The last epoch that each partition showed, and that the sources' own queries did.

    What is committed counts as shown: a driver that starts first shows the newest commit's parts again, from where they lie.
    """
    shown = {partition: cuts.newest.get(partition, 0) for partition in partitions}
    by_sources = cuts.last
    absent: frozenset[str] | None = None
    for record in records:
        if isinstance(record, CatchUpCommitted):
            for name, cursor in record.cursors.items():
                shown[Partition.parse(name)] = max(shown[Partition.parse(name)], cursor)
        elif isinstance(record, CheckpointPublished):
            absent = frozenset(record.absent)
        elif isinstance(record, EpochCommitted):
            absent = absent if record.absent is None else frozenset(record.absent)
            if absent is None:
                raise CorruptFileError(
                    f"the journal does not say who was absent in epoch {record.epoch}; expected an earlier record that does"
                )
            for partition in partitions:
                if str(partition) not in absent:
                    shown[partition] = max(shown[partition], record.epoch)
            by_sources = max(by_sources, record.epoch)
    return shown, by_sources
