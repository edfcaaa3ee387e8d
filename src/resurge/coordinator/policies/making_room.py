"""Room for what fits nowhere: where nodes have room for it together but none alone, live partitions move closer first."""

from dataclasses import replace

from resurge.coordinator.scheduling import is_room_in_sum, is_same_question
from resurge.coordinator.state import JobState, Migration
from resurge.model.names import Partition
from resurge.model.requests import PRECOPY
from resurge.protocols.recovery import Phase

MOST_PLACES = 50_000
"""Partitions times nodes up to which a solver may search. Where there are more partitions, each is small and finds room."""


def proposed(state: JobState, now_s: float) -> JobState:
    """Begin to make room; the same state if nothing waits for it, or if that was tried with the same nodes before."""
    recovery = state.recovery
    if not state.settings.balances or recovery.all_live or not is_wanted(state):
        return state
    asked = (frozenset(recovery.capacity), waiting(state))
    if state.balancing.no_room == asked or len(recovery.statuses) * len(recovery.capacity) > MOST_PLACES:
        return state
    migration = Migration("", PRECOPY, now_s, makes_room=True)
    return replace(state, balancing=replace(state.balancing, no_room=asked), migration=migration)


def is_wanted(state: JobState) -> bool:
    """Whether the planner can bring nothing back, nothing is on its way, and there would be room for all that waits."""
    recovery, strategy = state.recovery, state.strategy
    if not (strategy.heeds_capacity and strategy.overfills_at_last) or recovery.has_phase(Phase.CATCHING_UP):
        return False
    if state.question.number is not None or not is_same_question(recovery, state.question.unanswerable):
        return False
    return is_room_in_sum(recovery, waiting(state))


def waiting(state: JobState) -> frozenset[Partition]:
    """The partitions that wait for room."""
    return frozenset(state.recovery.of_phase(Phase.DOWN, Phase.STALLED))
