"""When a live epoch also saves every partition's state."""

from resurge.coordinator.state import JobState
from resurge.protocols.checkpoint import is_due


def is_wanted(state: JobState, epoch: int) -> bool:
    """A checkpoint is due and every partition is live."""
    return state.facts.is_whole and is_due(epoch, state.settings.checkpoint_interval, state.facts.checkpoint)
