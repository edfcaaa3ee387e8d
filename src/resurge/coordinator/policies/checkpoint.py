"""When a live epoch also saves the state of every partition that takes it."""

from resurge.coordinator.state import JobState
from resurge.protocols.checkpoint import is_due


def is_wanted(state: JobState, epoch: int) -> bool:
    """Enough epochs have passed since the last checkpoint, or since that of some partition that is live."""
    facts, interval = state.facts, state.settings.checkpoint_interval
    if facts.is_whole and facts.cuts.first == facts.cuts.last:
        return is_due(epoch, interval, facts.checkpoint)
    if not state.settings.saves_partially:
        return facts.is_whole and is_due(epoch, interval, facts.checkpoint)
    return any(is_due(epoch, interval, facts.restore_point(partition)) for partition in facts.live)


def is_anything_new(state: JobState) -> bool:
    """Whether some partition that is live is ahead of its checkpoint."""
    facts = state.facts
    if not facts.is_whole and not state.settings.saves_partially:
        return False
    return any(facts.restore_point(partition) < facts.head for partition in facts.live)
