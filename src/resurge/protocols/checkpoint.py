"""When to checkpoint, which checkpoint a restart may trust, and what may be forgotten. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class CheckpointRecord(NamedTuple):
    """A published global checkpoint."""

    epoch: int
    manifest: str
    checksum: int


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


def retention(published: Sequence[CheckpointRecord], keep: int) -> Retention:
    """Keep the newest checkpoints, and every journal record that a restart from the oldest of them would need.

    Until there are as many as are kept, the beginning of the job is the oldest.
    """
    ordered = candidates(published)
    kept, dropped = tuple(ordered[:keep]), tuple(ordered[keep:])
    oldest = min(record.epoch for record in kept) if len(kept) == keep else 0
    return Retention(kept, dropped, oldest + 1)
