"""Where the input of partitions that catch up comes from."""

from dataclasses import replace

from resurge.protocols import recovery as transitions
from resurge.protocols.catch_up import next_step
from resurge.protocols.cuts import Cuts
from resurge.protocols.epoch_sets import EpochSet
from resurge.protocols.recovery import RecoveryState
from tests.unit.protocols.test_recovery import N2, N3, N4, A, B, C, whole


def after(epochs: int) -> RecoveryState:
    """All live at this epoch, the last checkpoint being of epoch 5."""
    recovery = whole()
    for epoch in range(6, epochs + 1):
        recovery = transitions.epoch_done(recovery, epoch)
    return recovery


def lost_and_scheduled(recovery: RecoveryState) -> RecoveryState:
    return transitions.scheduled(transitions.nodes_lost(recovery, [N2], correlated_from=2), {B: N4}, ["c/0"])


def test_a_live_upstream_partition_is_replayed_as_a_shadow_where_no_buffer_is() -> None:
    """b needs all of a's epochs since the checkpoint; c, which is at the head, waits for it."""
    step = next_step(lost_and_scheduled(after(8)), {}, {})
    assert step is not None
    assert step.partitions == {B: range(6, 9)}
    assert (step.shadows, step.shadows_kept) == ({A: range(6, 9)}, frozenset())
    assert step.epochs == [6, 7, 8]


def test_buffers_spare_the_shadow() -> None:
    """What a live epoch buffered is sent again."""
    step = next_step(lost_and_scheduled(after(8)), {(A, B): EpochSet.of((6, 7, 8))}, {})
    assert step is not None
    assert step.shadows == {}
    assert step.buffered == {(A, B): range(6, 9)}


def test_a_shadow_goes_on_from_where_it_is() -> None:
    """Steps are bounded; the next one does not begin again."""
    recovery = transitions.advanced(lost_and_scheduled(after(8)), {B: 6})
    step = next_step(recovery, {}, {A: 6}, most_epochs=1)
    assert step is not None
    assert (step.epochs, step.shadows_kept) == ([7], {A})


def test_a_shadow_that_has_passed_what_another_partition_needs_begins_anew() -> None:
    """b is scheduled when the shadow of a has fed somebody else to epoch 7: going on, it would leave b without epochs 6 and 7."""
    step = next_step(lost_and_scheduled(after(8)), {}, {A: 7})
    assert step is not None
    assert (step.epochs[0], step.shadows_kept) == (6, frozenset())


def test_a_shadow_that_feeds_a_new_shadow_begins_anew_too() -> None:
    """c comes back; the shadow of b begins at the checkpoint, so that of a must as well."""
    recovery = transitions.scheduled(transitions.nodes_lost(after(8), [N3], correlated_from=2), {C: N4}, ["c/0"])
    step = next_step(recovery, {}, {A: 7})
    assert step is not None
    assert (step.shadows, step.shadows_kept) == ({A: range(6, 9), B: range(6, 9)}, frozenset())


def test_a_shadow_from_before_the_last_checkpoint_is_not_kept() -> None:
    """Its epochs are no longer in the journal."""
    recovery = lost_and_scheduled(after(8))
    recovery = transitions.advanced(replace(recovery, cuts=Cuts.whole(recovery.graph.upstream, 7)), {B: 7})
    step = next_step(recovery, {}, {A: 6})
    assert step is not None
    assert (step.epochs, step.shadows_kept) == ([8], frozenset())


def both_behind(cursor_of_b: int, cursor_of_c: int) -> RecoveryState:
    """b and c catch up, from different epochs."""
    recovery = transitions.nodes_lost(after(12), [N2, N3], correlated_from=2)
    recovery = transitions.scheduled(recovery, {B: N4, C: N4}, ["c/0"])
    return transitions.advanced(recovery, {B: cursor_of_b, C: cursor_of_c})


def test_everyone_goes_on_from_where_it_is() -> None:
    """b is at epoch 9 and c at 6; both take two epochs, c's being those that b has left in a buffer."""
    coverage = {(A, B): EpochSet.of(range(6, 13)), (B, C): EpochSet.of(range(6, 10))}
    step = next_step(both_behind(9, 6), coverage, {}, most_epochs=2)
    assert step is not None
    assert step.partitions == {B: range(10, 12), C: range(7, 9)}
    assert step.epochs == [7, 8, 10, 11]
    assert step.buffered == {(A, B): range(10, 12), (B, C): range(7, 9)}


def test_nobody_overtakes_what_feeds_it() -> None:
    """c is as far as b and would take more epochs than b does."""
    coverage = {(A, B): EpochSet.of(range(6, 9))}
    step = next_step(both_behind(6, 6), coverage, {A: 5}, most_epochs=4)
    assert step is not None
    assert step.partitions[C].stop <= step.partitions[B].stop


def test_a_shadow_does_not_run_ahead_of_those_it_feeds() -> None:
    """b needs a's shadow from epoch 6 on; whatever the step is, the shadow takes no epoch that b does not take with it."""
    step = next_step(both_behind(5, 5), {}, {}, most_epochs=3)
    assert step is not None
    assert step.shadows == {A: range(6, 9)}
    assert step.partitions == {B: range(6, 9), C: range(6, 9)}
