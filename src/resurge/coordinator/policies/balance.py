"""Even load without being asked: when it has been uneven for long enough, a few key groups move."""

from dataclasses import replace

from resurge.coordinator.state import JobState, Migration
from resurge.model.requests import PRECOPY

UNEVEN = 1.3
"""The highest utilisation over that of the whole cluster from which on load counts as uneven."""
LEAST_UTILISATION = 0.1
"""Below this, nobody gains by moving anything."""
UNEVEN_EPOCHS = 5
REST_EPOCHS = 10
"""How long nothing moves after a move, so that its effect is measured first."""


def proposed(state: JobState, now_s: float) -> JobState:
    """Look at the load once per epoch; never in the middle of a recovery."""
    watch, recovery = state.balancing, state.recovery
    if not state.settings.balances or recovery.head == watch.head or not recovery.all_live:
        return state
    is_uneven = _is_uneven(state)
    watch = replace(watch, head=recovery.head, uneven=watch.uneven + 1 if is_uneven else 0)
    if watch.uneven < UNEVEN_EPOCHS or recovery.head < watch.not_before_epoch:
        return replace(state, balancing=watch)
    return replace(state, balancing=replace(watch, uneven=0), migration=Migration("", PRECOPY, now_s))


def rested(state: JobState) -> JobState:
    """A move has ended, or none was found: nothing moves for a while."""
    rest = replace(state.balancing, uneven=0, not_before_epoch=state.recovery.head + REST_EPOCHS)
    return replace(state, balancing=rest)


def _is_uneven(state: JobState) -> bool:
    capacity = {node: value for node, value in state.recovery.capacity.items() if node not in state.draining}
    total = sum(capacity.values())
    if len(capacity) < 2 or total <= 0:
        return False
    used = dict.fromkeys(capacity, 0.0)
    for partition, known in state.recovery.statuses.items():
        if known.node is not None and known.node in used:
            used[known.node] += state.recovery.costs.get(partition, 0.0)
    mean = sum(used.values()) / total
    highest = max(used[node] / capacity[node] for node in used if capacity[node] > 0)
    return highest > LEAST_UTILISATION and highest > UNEVEN * mean
