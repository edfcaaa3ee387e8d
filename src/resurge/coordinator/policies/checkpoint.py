"""When a live epoch also saves the state of every partition that takes it."""

from resurge.coordinator.state import JobState
from resurge.protocols import recovery
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.checkpoint import is_due
from resurge.protocols.recovery import Facts


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


def is_possible_with(facts: Facts, step: CatchUp) -> bool:
    """Whether all whom a step brings along take the live epoch too: what is saved of another epoch would be in no manifest."""
    after = recovery.advanced(facts, step.cursors())
    return not step.shadows and after.live.issuperset(step.partitions)
