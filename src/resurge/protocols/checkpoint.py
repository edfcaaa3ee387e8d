"""When to checkpoint, which checkpoint a restart may trust, and what may be forgotten. Pure."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple


class CheckpointRecord(NamedTuple):
    """A published checkpoint: it has every partition but the absent ones, which were not live."""

    epoch: int
    manifest: str
    checksum: int
    absent: tuple[str, ...] = ()


class Retention(NamedTuple):
    """What is kept after a checkpoint was published: these checkpoints, and the journal from this epoch on."""

    kept: tuple[CheckpointRecord, ...]
    dropped: tuple[CheckpointRecord, ...]
    first_epoch: int


def is_due(epoch: int, interval: int, last_checkpoint: int) -> bool:
    """Every `interval`-th epoch after the last checkpoint; an interval of 0 switches checkpoints off."""
    return interval > 0 and epoch - last_checkpoint >= interval


def candidates(published: Iterable[CheckpointRecord]) -> list[CheckpointRecord]:
    """The checkpoints that a restart may try, newest first."""
    newest: dict[int, CheckpointRecord] = {}
    for record in published:
        newest[record.epoch] = record
    return [newest[epoch] for epoch in sorted(newest, reverse=True)]


def retention(published: Sequence[CheckpointRecord], keep: int, partitions: Collection[str] = ()) -> Retention:
    """Keep the newest checkpoints of each partition, and every journal record that a restart from the oldest of them would need.

    Until a partition has as many as are kept, the beginning of the job is its oldest. A job without partitions has one state.
    """
    saved = dict.fromkeys(partitions or ("",), 0)
    oldest = dict.fromkeys(saved, 0)
    kept, dropped = list[CheckpointRecord](), list[CheckpointRecord]()
    for record in candidates(published):
        absent = frozenset(record.absent)
        needing = [partition for partition, count in saved.items() if count < keep and partition not in absent]
        (kept if needing else dropped).append(record)
        for partition in needing:
            saved[partition] += 1
            if saved[partition] == keep:
                oldest[partition] = record.epoch
    return Retention(tuple(kept), tuple(dropped), min(oldest.values()) + 1)
