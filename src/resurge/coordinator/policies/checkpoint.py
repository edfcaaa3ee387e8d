"""When a live epoch also saves the state of every partition that takes it."""

from resurge.coordinator.inputs import Failure
from resurge.coordinator.state import JobState
from resurge.protocols import recovery
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.checkpoint import is_due
from resurge.protocols.recovery import Facts, Phase

MOST_NAMED = 5
"""A message names so many partitions; more would hide what it says."""


def is_wanted(state: JobState, epoch: int) -> bool:
    """Enough epochs have passed since the last checkpoint, or since that of some partition that is live."""
    facts, interval = state.facts, state.settings.checkpoint_interval
    if facts.is_whole and facts.cuts.first == facts.cuts.last:
        return is_due(epoch, interval, facts.checkpoint)
    if not state.settings.saves_partially:
        return facts.is_whole and is_due(epoch, interval, facts.checkpoint)
    return any(is_due(epoch, interval, facts.restore_point(partition)) for partition in facts.live)


def is_anything_new(state: JobState) -> bool:
    """Whether some partition that is live is ahead of its checkpoint; a second one of an epoch has all that the first has."""
    facts = state.facts
    if facts.is_whole:
        return facts.cuts.first < facts.head
    if not state.settings.saves_partially or (facts.cuts.last == facts.head and not facts.cuts.kept[-1].partitions <= facts.live):
        return False
    if not facts.standing:
        # A job without state has checkpoints too: they trim its journal.
        return facts.checkpoint < facts.head
    return any(facts.restore_point(partition) < facts.head for partition in facts.live)


def over_limit(state: JobState) -> Failure | None:
    """Why the driver ends: partitions have been down for so long that more input is kept for them than the user allows."""
    facts, limit = state.facts, state.settings.most_epochs_kept
    if limit is None or facts.is_whole:
        return None
    waiting = facts.of_phase(Phase.DOWN, Phase.STALLED)
    absent = [partition for partition in waiting if facts.head - facts.restore_point(partition) > limit]
    if not absent:
        return None
    oldest = min(facts.restore_point(partition) for partition in absent)
    named = ", ".join(map(str, absent[:MOST_NAMED])) + (
        f" and {len(absent) - MOST_NAMED} more" if len(absent) > MOST_NAMED else ""
    )
    message = (
        f"{len(absent)} partitions are down ({named}), and the input of {facts.head - oldest} epochs is kept for them; expected at "
        f"most {limit}: add nodes and run the same command again, or allow more; no data was lost"
    )
    return Failure("JobError", message)


def is_possible_with(facts: Facts, step: CatchUp) -> bool:
    """Whether all whom a step brings along take the live epoch too: what is saved of another epoch would be in no manifest."""
    after = recovery.advanced(facts, step.cursors())
    return not step.shadows and after.live.issuperset(step.partitions)
