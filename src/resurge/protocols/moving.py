"""What becomes of live partitions that get other nodes: they switch with an epoch, or pause and go on elsewhere. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from resurge.errors import ProtocolError
from resurge.model.names import NodeId, Partition
from resurge.protocols.recovery import Event, Phase, RecoveryState, stalled


def switched(recovery: RecoveryState, placement: Mapping[Partition, NodeId]) -> RecoveryState:
    """Live partitions go on elsewhere, with the same cursor."""
    statuses = dict(recovery.statuses)
    for partition, node in placement.items():
        known = statuses[partition]
        if known.phase is not Phase.LIVE:
            raise ProtocolError(f"partition {partition} is {known.phase.name} and cannot move; expected it to be LIVE")
        statuses[partition] = replace(known, node=node)
    return replace(recovery, statuses=statuses, revision=recovery.revision + 1)


def paused(recovery: RecoveryState, partitions: Iterable[Partition]) -> RecoveryState:
    """Live partitions take no epochs until their states are on other nodes; what they and others miss is buffered."""
    waiting = {partition: recovery.statuses[partition].after(Event.PAUSED, partition) for partition in partitions}
    return stalled(replace(recovery, statuses={**recovery.statuses, **waiting}, is_buffering=True))


def relocated(recovery: RecoveryState, begins: Mapping[Partition, tuple[NodeId, int]]) -> RecoveryState:
    """Live or paused partitions go on elsewhere, from the states of older epochs: they catch up, and what they feed stalls."""
    known = {partition: recovery.statuses[partition].after(Event.MOVED, partition) for partition in begins}
    moved = {partition: replace(known[partition], node=node, cursor=cursor) for partition, (node, cursor) in begins.items()}
    return stalled(replace(recovery, statuses={**recovery.statuses, **moved}))
