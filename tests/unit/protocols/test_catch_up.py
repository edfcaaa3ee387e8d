"""Where the input of partitions that catch up comes from."""

from dataclasses import replace

from resurge.protocols import recovery
from resurge.protocols.catch_up import epochs_per_step, next_step
from resurge.protocols.recovery import Facts
from tests.unit.protocols.test_recovery import N2, N3, N4, A, B, C, whole


def after(epochs: int) -> Facts:
    """All live at this epoch, the last checkpoint being of epoch 5."""
    facts = whole()
    for epoch in range(6, epochs + 1):
        facts = recovery.epoch_done(facts, epoch)
    return facts


def lost_and_scheduled(facts: Facts) -> Facts:
    return recovery.scheduled(recovery.nodes_lost(facts, [N2], correlated_from=2), {B: N4}, ["c/0"])


def test_a_live_upstream_partition_is_replayed_as_a_shadow_where_no_buffer_is() -> None:
    """b needs all of a's epochs since the checkpoint; c gets its from b."""
    step = next_step(lost_and_scheduled(after(8)), {}, {}, most_epochs=16)
    assert step is not None
    assert (step.first, step.last, step.partitions) == (6, 8, (B, C))
    assert (step.shadows_until, step.shadows_kept) == ({A: 8}, frozenset())


def test_buffers_spare_the_shadow() -> None:
    """What a live epoch buffered is sent again."""
    step = next_step(lost_and_scheduled(after(8)), {(A, B): frozenset((6, 7, 8))}, {}, most_epochs=16)
    assert step is not None
    assert step.shadows_until == {}
    assert (A, B) in step.buffered


def test_a_shadow_goes_on_from_where_it_is() -> None:
    """Steps are bounded; the next one does not begin again."""
    facts = recovery.advanced(lost_and_scheduled(after(8)), {B: 6})
    step = next_step(facts, {}, {A: 6}, most_epochs=1)
    assert step is not None
    assert (step.first, step.last, step.shadows_kept) == (7, 7, {A})


def test_a_shadow_that_has_passed_what_another_partition_needs_begins_anew() -> None:
    """b is scheduled when the shadow of a has fed somebody else to epoch 7: going on, it would leave b without epochs 6 and 7."""
    step = next_step(lost_and_scheduled(after(8)), {}, {A: 7}, most_epochs=16)
    assert step is not None
    assert (step.first, step.shadows_kept) == (6, frozenset())


def test_a_shadow_that_feeds_a_new_shadow_begins_anew_too() -> None:
    """c comes back; the shadow of b begins at the checkpoint, so that of a must as well."""
    facts = recovery.scheduled(recovery.nodes_lost(after(8), [N3], correlated_from=2), {C: N4}, ["c/0"])
    step = next_step(facts, {}, {A: 7}, most_epochs=16)
    assert step is not None
    assert (step.shadows_until, step.shadows_kept) == ({A: 8, B: 8}, frozenset())


def test_a_shadow_from_before_the_last_checkpoint_is_not_kept() -> None:
    """Its epochs are no longer in the journal."""
    facts = replace(lost_and_scheduled(after(8)), checkpoint=7)
    facts = recovery.advanced(facts, {B: 7})
    step = next_step(facts, {}, {A: 6}, most_epochs=16)
    assert step is not None
    assert (step.first, step.shadows_kept) == (8, frozenset())


def test_a_step_always_gains_on_the_head() -> None:
    """One live epoch passes between two steps, so even without any time left a step takes two."""
    assert epochs_per_step(0.0, 5.0, most=16) == 2
    assert epochs_per_step(100.0, 1.0, most=16) == 16
