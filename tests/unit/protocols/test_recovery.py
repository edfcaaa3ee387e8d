"""The recovery protocol: its table, what stalls, and when partitions join."""

import itertools
from dataclasses import replace

import pytest

from resurge.errors import ProtocolError
from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.protocols import recovery as transitions
from resurge.protocols.recovery import TRANSITIONS, Event, Graph, PartitionStatus, Phase, QueryNeed, RecoveryState

A, B, C = (Partition(name, KeyGroup(0)) for name in "abc")
LONE = Partition("lone", KeyGroup(0))
N1, N2, N3, N4 = (NodeId(name) for name in ("n1", "n2", "n3", "n4"))


def whole(epoch: int = 5) -> RecoveryState:
    """a feeds b feeds c, each on a node; lone has a node for itself."""
    upstream = {A: frozenset[Partition](), B: frozenset((A,)), C: frozenset((B,)), LONE: frozenset[Partition]()}
    queries = {"c/0": QueryNeed(3, frozenset((A, B, C))), "lone/0": QueryNeed(1, frozenset((LONE,)))}
    recovery = transitions.begin(
        Graph(upstream, queries), dict.fromkeys((N1, N2, N3, N4), 1.0), {A: N1, B: N2, C: N3, LONE: N4}, epoch
    )
    return replace(recovery, costs=dict.fromkeys(upstream, 0.5))


def phases(recovery: RecoveryState) -> dict[str, Phase]:
    return {partition.operator: known.phase for partition, known in recovery.statuses.items()}


@pytest.mark.parametrize(("phase", "event"), list(itertools.product(Phase, Event)))
def test_every_event_follows_the_table_or_is_refused_with_what_would_be_accepted(phase: Phase, event: Event) -> None:
    """A refused event names the phase and all events it accepts, and changes nothing."""
    statuses = PartitionStatus(phase, N1, 4, 3)
    if (phase, event) in TRANSITIONS:
        assert statuses.after(event, A) == PartitionStatus(TRANSITIONS[phase, event], N1, 4, 3)
        return
    with pytest.raises(ProtocolError) as refusal:
        statuses.after(event, A)
    accepted = sorted(known.name for given, known in TRANSITIONS if given is phase)
    assert str(refusal.value) == f"partition a/0 is {phase.name} and cannot handle {event.name}; it accepts {', '.join(accepted)}"
    assert statuses == PartitionStatus(phase, N1, 4, 3)


def test_every_phase_but_down_can_lose_its_node() -> None:
    """A node may die at any time."""
    assert {phase for phase, event in TRANSITIONS if event is Event.NODE_LOST} == set(Phase) - {Phase.DOWN}


def test_a_lost_node_takes_its_partitions_down_and_stalls_what_they_fed() -> None:
    """Down at the checkpoint; stalled with state and cursor; the rest goes on."""
    before = transitions.epoch_done(whole(), 6)
    recovery = transitions.nodes_lost(before, [N2], correlated_from=2)
    assert phases(recovery) == {"a": Phase.LIVE, "b": Phase.DOWN, "c": Phase.STALLED, "lone": Phase.LIVE}
    assert recovery.statuses[B] == PartitionStatus(Phase.DOWN, None, 5, 6)
    assert recovery.statuses[C] == PartitionStatus(Phase.STALLED, N3, 6, 6)
    assert recovery.live_queries == {"lone/0"}
    assert before.all_live


def test_an_unknown_node_changes_nothing() -> None:
    """A node that was never used, or that was already lost."""
    recovery = transitions.nodes_lost(whole(), [N2], correlated_from=2)
    assert transitions.nodes_lost(recovery, [N2, NodeId("other")], correlated_from=2) is recovery


def test_buffering_begins_with_the_second_node_since_the_checkpoint() -> None:
    """One failure is not correlated; a checkpoint forgets earlier ones."""
    one = transitions.nodes_lost(whole(), [N4], correlated_from=2)
    two = transitions.nodes_lost(one, [N3], correlated_from=2)
    assert (one.is_buffering, two.is_buffering) == (False, True)


def test_only_what_is_placed_begins_to_catch_up() -> None:
    """A stalled partition comes along once nothing above it is down; not before."""
    recovery = transitions.nodes_lost(whole(), [N1, N2], correlated_from=2)
    half = transitions.scheduled(recovery, {A: N3}, ["c/0"])
    assert phases(half) == {"a": Phase.CATCHING_UP, "b": Phase.DOWN, "c": Phase.STALLED, "lone": Phase.LIVE}
    both = transitions.scheduled(recovery, {A: N3, B: N4}, ["c/0"])
    assert phases(both) == {"a": Phase.CATCHING_UP, "b": Phase.CATCHING_UP, "c": Phase.CATCHING_UP, "lone": Phase.LIVE}
    assert [both.statuses[partition].node for partition in (A, B, C)] == [N3, N4, N3]


def test_a_partition_joins_only_at_the_head_and_below_live_ones() -> None:
    """Catching up ends at an epoch boundary, upstream first."""
    lost = transitions.nodes_lost(transitions.epoch_done(whole(), 6), [N1], correlated_from=2)
    recovery = transitions.scheduled(lost, {A: N4}, ["c/0"])
    later = transitions.epoch_done(recovery, 7)
    assert later.statuses[LONE].cursor == 7
    behind = transitions.advanced(later, {A: 6, B: 6, C: 6})
    assert set(phases(behind).values()) == {Phase.CATCHING_UP, Phase.LIVE}
    below = transitions.advanced(behind, {B: 7})
    assert below.statuses[B].phase is Phase.CATCHING_UP
    assert transitions.advanced(below, {A: 7, C: 7}).all_live


def test_a_second_failure_stalls_what_was_catching_up() -> None:
    """What survives keeps what it has processed."""
    lost = transitions.nodes_lost(transitions.epoch_done(whole(), 6), [N1], correlated_from=2)
    later = transitions.epoch_done(transitions.scheduled(lost, {A: N4}, ["c/0"]), 7)
    again = transitions.nodes_lost(transitions.advanced(later, {A: 6}), [N4], correlated_from=2)
    assert phases(again) == {"a": Phase.DOWN, "b": Phase.STALLED, "c": Phase.STALLED, "lone": Phase.DOWN}
    assert again.statuses[B].cursor == 6


def test_rolling_back_keeps_what_was_shown() -> None:
    """Replayed epochs are not shown again."""
    recovery = transitions.rolled_back(transitions.epoch_done(whole(), 6))
    assert set(recovery.statuses.values()) == {PartitionStatus(Phase.DOWN, None, 5, 6)}


def test_an_epoch_out_of_order_is_refused() -> None:
    """Epochs follow one another."""
    with pytest.raises(ProtocolError, match="epoch 8 cannot follow epoch 5; expected epoch 6"):
        transitions.epoch_done(whole(), 8)


def test_a_checkpoint_is_of_what_is_live_and_ends_buffering_when_that_is_everything() -> None:
    """While others are down, those that are live go on from it; what is down goes on from where it was."""
    lost = transitions.nodes_lost(whole(), [N1, N2], correlated_from=2)
    with pytest.raises(ProtocolError, match="needs partitions that are live at it; a/0 is not live there"):
        transitions.checkpointed(lost, 5, [A])
    later = transitions.checkpointed(transitions.epoch_done(lost, 6), 6)
    assert (later.restore_point(LONE), later.restore_point(A), later.is_buffering) == (6, 5, True)
    again = transitions.nodes_lost(later, [N4], correlated_from=2)
    assert again.statuses[LONE].cursor == 6
    back = transitions.advanced(transitions.scheduled(lost, {A: N3, B: N3}, ["c/0"]), {})
    saved = transitions.checkpointed(back, 5)
    assert (saved.is_buffering, saved.nodes_lost, saved.checkpoint) == (False, 0, 5)


def test_free_capacity_counts_what_runs() -> None:
    """A stalled partition does nothing, so that its room is free until it resumes."""
    recovery = transitions.nodes_lost(whole(), [N1], correlated_from=2)
    assert recovery.free() == {N2: 1.0, N3: 1.0, N4: 0.5}
