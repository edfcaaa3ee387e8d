"""When live epochs run in one slot."""

import pytest

from resurge.protocols.slot_choice import (
    MOST_CPU_S,
    MOST_STATE_BYTES,
    SPREAD,
    STATE_BYTES_PER_EPOCH,
    TOO_MUCH_CPU_S,
    Load,
    observed,
)


def after(load: Load, epochs: int, rows: int, cpu_s: float, state_bytes: int = 0) -> Load:
    """The load after some epochs that are alike."""
    for _ in range(epochs):
        load = observed(load, rows, cpu_s, state_bytes)
    return load


def test_cold_epochs_do_not_count_unless_they_are_large() -> None:
    """They start processes; only if they take very long, or have many rows, is it because of these."""
    assert after(after(Load(), 3, 500, 5 * MOST_CPU_S), 50, 500, MOST_CPU_S / 5).is_one_slot
    assert not after(Load(), 1, 400_000, 20 * MOST_CPU_S).is_one_slot
    assert not after(Load(), 2, 400_000, 3 * MOST_CPU_S).is_one_slot


def test_epochs_that_were_spread_by_mistake_come_together_again() -> None:
    """If all slots together take less than one may, one would too, though the rows are as many as before."""
    wide = after(after(Load(), 10, 500, MOST_CPU_S / 5), 15, 500, 4 * MOST_CPU_S)
    assert not wide.is_one_slot
    assert after(wide, 40, 500, MOST_CPU_S / 2).is_one_slot


def test_an_epoch_that_is_too_much_for_one_slot_is_spread_and_stays_so() -> None:
    """All slots together take more than one did: that says nothing, and the choice does not alternate."""
    wide = after(after(Load(), 5, 500, MOST_CPU_S / 5), 3, 40_000, 3 * MOST_CPU_S)
    assert not wide.is_one_slot
    assert not after(wide, 500, 20_000, 6 * MOST_CPU_S).is_one_slot
    assert not after(wide, 500, 25_000, 2 * MOST_CPU_S).is_one_slot


def test_one_long_epoch_among_short_ones_changes_nothing() -> None:
    """Such as one that merges or takes a checkpoint, however long it is; every eighth may be one."""
    load = after(Load(), 10, 500, MOST_CPU_S / 2)
    for _ in range(20):
        load = after(after(load, 1, 500, 20 * MOST_CPU_S), 7, 500, MOST_CPU_S / 2)
    assert load.is_one_slot


def test_long_epochs_among_short_ones_do_not_keep_epochs_in_all_slots() -> None:
    """Every eighth merges state and takes as long as twenty; the others are small."""
    load = SPREAD
    for _ in range(10):
        load = after(after(load, 1, 500, 20 * MOST_CPU_S), 7, 500, MOST_CPU_S / 3)
    assert load.is_one_slot


def test_epochs_near_the_limit_stay_where_they_are() -> None:
    """On a slow machine they take about as long either way; bringing the state together costs, so the choice does not alternate."""
    between = (MOST_CPU_S + TOO_MUCH_CPU_S) / 2
    together = after(SPREAD, 30, 500, MOST_CPU_S)
    assert together.is_one_slot
    assert after(together, 200, 500, between).is_one_slot
    wide = after(together, 50, 500, 1.1 * TOO_MUCH_CPU_S)
    assert not wide.is_one_slot
    assert not after(wide, 200, 500, 1.1 * TOO_MUCH_CPU_S).is_one_slot


def test_many_more_rows_are_spread_at_once() -> None:
    """They are no long epoch among others."""
    small = after(Load(), 50, 500, MOST_CPU_S / 5)
    assert not after(small, 1, 400_000, 20 * MOST_CPU_S).is_one_slot


def test_the_epochs_that_bring_a_state_together_do_not_count() -> None:
    """They write it anew; only if there are many more rows than before are they spread again."""
    together = after(SPREAD, 30, 40_000, MOST_CPU_S / 2)
    assert together.is_one_slot
    assert after(after(SPREAD, 20, 40_000, MOST_CPU_S / 2), 3, 40_000, 20 * MOST_CPU_S).is_one_slot
    assert not after(after(SPREAD, 20, 40_000, MOST_CPU_S / 2), 2, 400_000, 20 * MOST_CPU_S).is_one_slot


def test_epochs_come_together_again_when_they_have_half_the_rows_but_not_at_once() -> None:
    """A pause of a moment does not move the state."""
    wide = after(Load(), 5, 40_000, 3 * MOST_CPU_S)
    assert not after(wide, 15, 100, 2 * MOST_CPU_S).is_one_slot
    assert after(wide, 22, 100, 2 * MOST_CPU_S).is_one_slot


def test_the_larger_a_state_the_longer_epochs_must_be_small_before_it_is_brought_together() -> None:
    """It is written anew then, which has to pay."""
    state_bytes = 100 * STATE_BYTES_PER_EPOCH
    assert not after(SPREAD, 100, 10, 0.001, state_bytes).is_one_slot
    assert after(SPREAD, 130, 10, 0.001, state_bytes).is_one_slot


def test_a_very_large_state_stays_where_it_is() -> None:
    """All slots merge and save it side by side."""
    assert not after(Load(), 1, 100, 0.001, MOST_STATE_BYTES + 1).is_one_slot
    wide = after(Load(), 5, 40_000, 3 * MOST_CPU_S)
    assert not after(wide, 2_000, 100, 0.001, MOST_STATE_BYTES).is_one_slot


@pytest.mark.parametrize(("state_bytes", "is_one_slot"), [(1_000_000, True), (MOST_STATE_BYTES, False)])
def test_a_job_begins_in_all_slots_and_comes_together_later_if_its_state_is_small(state_bytes: int, is_one_slot: bool) -> None:
    """However few rows there are."""
    assert not after(SPREAD, 10, 10, 0.001, state_bytes).is_small(1)
    assert after(SPREAD, 30, 10, 0.001, state_bytes).is_one_slot is is_one_slot
