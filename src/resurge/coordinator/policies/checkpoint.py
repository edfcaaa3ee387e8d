"""When a live epoch also saves the state of every partition that takes it."""

from resurge.coordinator.inputs import Failure
from resurge.coordinator.state import JobState
from resurge.protocols import recovery as transitions
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.checkpoint import is_due
from resurge.protocols.recovery import Phase, RecoveryState

MOST_NAMED = 5
"""A message names so many partitions; more would hide what it says."""


def is_wanted(state: JobState, epoch: int) -> bool:
    """Enough epochs have passed since the last checkpoint, or since that of some partition that is live."""
    recovery, interval = state.recovery, state.settings.checkpoint_interval
    if recovery.all_live and recovery.cuts.first == recovery.cuts.last:
        return is_due(epoch, interval, recovery.checkpoint)
    if not state.settings.saves_partially:
        return recovery.all_live and is_due(epoch, interval, recovery.checkpoint)
    return any(is_due(epoch, interval, recovery.restore_point(partition)) for partition in recovery.live)


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


def over_limit(state: JobState) -> Failure | None:
    """Why the driver ends: partitions have been down for so long that more input is kept for them than the user allows."""
    recovery, limit = state.recovery, state.settings.most_epochs_kept
    if limit is None or recovery.all_live:
        return None
    waiting = recovery.of_phase(Phase.DOWN, Phase.STALLED)
    absent = [partition for partition in waiting if recovery.head - recovery.restore_point(partition) > limit]
    if not absent:
        return None
    oldest = min(recovery.restore_point(partition) for partition in absent)
    named = ", ".join(map(str, absent[:MOST_NAMED])) + (
        f" and {len(absent) - MOST_NAMED} more" if len(absent) > MOST_NAMED else ""
    )
    message = (
        f"{len(absent)} partitions are down ({named}), and the input of {recovery.head - oldest} epochs is kept for them; expected at "
        f"most {limit}: add nodes and run the same command again, or allow more; no data was lost"
    )
    return Failure("JobError", message)


def is_possible_with(recovery: RecoveryState, step: CatchUp) -> bool:
    """Whether all whom a step brings along take the live epoch too: what is saved of another epoch would be in no manifest."""
    after = transitions.advanced(recovery, step.cursors())
    return not step.shadows and after.live.issuperset(step.partitions)
