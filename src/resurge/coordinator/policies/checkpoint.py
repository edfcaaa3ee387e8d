"""When a live epoch also takes a checkpoint, and whether one that is being written still counts."""

from dataclasses import replace

from resurge.coordinator.state import JobState, Taken
from resurge.model.names import Partition
from resurge.protocols import recovery as transitions
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.checkpoint import is_due
from resurge.protocols.recovery import RecoveryState


def is_wanted(state: JobState, epoch: int, now_s: float) -> bool:
    """The last checkpoint, or that of some partition that is live, is old enough; and none is being written."""
    settings, recovery = state.settings, state.recovery
    if state.taken is not None or not (recovery.all_live or (settings.saves_partially and recovery.live)):
        return False
    if settings.checkpoint_interval_s:
        taken_s = state.rhythm.checkpoint_s
        return taken_s is not None and now_s - taken_s >= settings.checkpoint_interval_s
    if recovery.all_live and (recovery.cuts.first == recovery.cuts.last or not settings.saves_partially):
        return is_due(epoch, settings.checkpoint_interval, recovery.checkpoint)
    return any(is_due(epoch, settings.checkpoint_interval, recovery.restore_point(partition)) for partition in recovery.live)


def saved_partitions(state: JobState, taken: Taken) -> frozenset[Partition]:
    """The partitions that a checkpoint has."""
    return frozenset(state.recovery.graph.upstream).difference(taken.absent)


def given_up_if_lost(state: JobState) -> JobState:
    """Without the checkpoint that is being written, if a node that writes it is gone, or a partition of it is not live any more.

    Such a partition is down at an older checkpoint, which must stay; the next live epoch takes another one.
    """
    taken = state.taken
    if taken is None:
        return state
    is_whole = taken.nodes <= state.recovery.capacity.keys() and saved_partitions(state, taken) <= state.recovery.live
    return state if is_whole else replace(state, taken=None)


def is_anything_new(state: JobState) -> bool:
    """Whether some partition that is live is ahead of its checkpoint; a second one of an epoch has all that the first has."""
    recovery = state.recovery
    if recovery.all_live:
        return recovery.cuts.first < recovery.head
    if not state.settings.saves_partially or (
        recovery.cuts.last == recovery.head and not recovery.cuts.kept[-1].partitions <= recovery.live
    ):
        return False
    if not recovery.statuses:
        # A job without state has checkpoints too: they trim its journal.
        return recovery.checkpoint < recovery.head
    return any(recovery.restore_point(partition) < recovery.head for partition in recovery.live)


def is_possible_with(recovery: RecoveryState, step: CatchUp) -> bool:
    """Whether all whom a step brings along take the live epoch too: what is saved of another epoch would be in no manifest."""
    after = transitions.advanced(recovery, step.cursors())
    return not step.shadows and after.live.issuperset(step.partitions)
