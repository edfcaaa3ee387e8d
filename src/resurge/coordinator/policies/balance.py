"""Even load without being asked: when it has been uneven for long enough, a few key groups move."""

from dataclasses import replace

from resurge.coordinator import costs
from resurge.coordinator.state import JobState, Migration
from resurge.model.requests import PRECOPY

UNEVEN = 1.15
"""The highest utilisation over that of the whole cluster from which on load counts as uneven."""
LEAST_UTILISATION = 0.1
"""Below this, nobody gains by moving anything."""
UNEVEN_EPOCHS = 3
REST_EPOCHS = 4
"""How long nothing moves after a move, so that its effect is measured first."""
REST_IN_VAIN_EPOCHS = 30
"""How long the planner is not asked again after it found no move that is worth it."""


def proposed(state: JobState, now_s: float) -> JobState:
    """Look at the load once per epoch; never in the middle of a recovery."""
    watch, recovery = state.balancing, state.recovery
    if not state.settings.balances or recovery.head == watch.head or not recovery.all_live:
        return state
    # After a recovery the load is uneven by placement, and not by chance.
    is_recovered = 0 < watch.head < recovery.head - 1
    counted = UNEVEN_EPOCHS if is_recovered else watch.uneven + 1
    watch = replace(watch, head=recovery.head, uneven=counted if _is_uneven(state) else 0)
    if watch.uneven < UNEVEN_EPOCHS or recovery.head < watch.not_before_epoch:
        return replace(state, balancing=watch)
    return replace(state, balancing=replace(watch, uneven=0), migration=Migration("", PRECOPY, now_s))


def rested(state: JobState, *, is_better: bool) -> JobState:
    """A move has ended, or none was found: nothing moves for a while."""
    epochs = REST_EPOCHS if is_better else REST_IN_VAIN_EPOCHS
    return replace(state, balancing=replace(state.balancing, uneven=0, not_before_epoch=state.recovery.head + epochs))


def _is_uneven(state: JobState) -> bool:
    capacity = {node: value for node, value in state.recovery.capacity.items() if node not in state.draining}
    total = sum(capacity.values())
    if len(capacity) < 2 or total <= 0:
        return False
    by_node = costs.used(state.recovery)[1]
    used = {node: by_node.get(node, 0.0) for node in capacity}
    mean = sum(used.values()) / total
    highest = max(used[node] / capacity[node] for node in used if capacity[node] > 0)
    return highest > LEAST_UTILISATION and highest > UNEVEN * mean
