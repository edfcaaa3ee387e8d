"""Partitions that skip the input which is kept for them, and go on from a later epoch. Pure."""

from collections.abc import Collection
from dataclasses import replace

from resurge.model.names import Partition
from resurge.protocols.cuts import Cut
from resurge.protocols.recovery import Event, RecoveryState


def can_skip(recovery: RecoveryState, partitions: Collection[Partition], epoch: int) -> frozenset[Partition]:
    """Those of some partitions that can go on after an epoch: all that feeds them has a checkpoint of it, or skips to it as well."""
    saved, found = _saved_at(recovery, epoch), set[Partition]()
    for partition, upstream in recovery.graph.upstream.items():
        is_behind = partition not in saved and recovery.statuses[partition].cursor < epoch
        if is_behind and partition in partitions and all(above in saved or above in found for above in upstream):
            found.add(partition)
    return frozenset(found)


def given_up(recovery: RecoveryState, partitions: Collection[Partition], epoch: int) -> RecoveryState:
    """Partitions skip the epochs up to one: they are down there, with the states of their older checkpoints."""
    cuts = recovery.cuts.with_cut(Cut(epoch, _saved_at(recovery, epoch).union(partitions)))
    statuses = dict(recovery.statuses)
    for partition in partitions:
        known = statuses[partition].after(Event.GIVEN_UP, partition)
        statuses[partition] = replace(known, node=None, cursor=epoch, published=max(known.published, epoch))
    return replace(recovery, statuses=statuses, cuts=cuts, revision=recovery.revision + 1)


def _saved_at(recovery: RecoveryState, epoch: int) -> frozenset[Partition]:
    return next((cut.partitions for cut in recovery.cuts.kept if cut.epoch == epoch), frozenset())
