"""Pace and back-pressure: how much an epoch may take, and when the next one begins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resurge.protocols.epoch import Pace, costs, is_full, observed, row_limit, wait_s


def test_a_job_that_keeps_up_is_not_limited():
    """As long as every epoch ends within its interval, an epoch takes all there is."""
    pace = Pace()
    for rows in (100, 10_000, 5):
        pace = observed(pace, rows, took_s=0.4, interval_s=1.0)
        assert not pace.is_pressed
        assert row_limit(pace, 1.0, None) is None


def test_the_first_epoch_that_outlasts_its_interval_bounds_the_next():
    """The bound is what fits into nine tenths of the interval at the pace seen."""
    pace = observed(Pace(), 1000, took_s=2.0, interval_s=1.0)
    assert pace.is_pressed
    assert row_limit(pace, 1.0, None) == 450


def test_the_fixed_cost_of_an_epoch_is_told_from_that_of_its_rows():
    """Epochs of different sizes show what an epoch costs without rows; the bound leaves room for it."""
    pace = Pace()
    for rows in (1000, 2000, 1000, 2000):
        pace = observed(pace, rows, took_s=0.2 + rows / 1000, interval_s=1.0)
    fixed_s, per_row_s = costs(pace)
    assert (fixed_s, per_row_s) == (pytest.approx(0.2, abs=1e-6), pytest.approx(0.001, abs=1e-9))
    assert row_limit(pace, 1.0, None) == pytest.approx(700, abs=1)
    assert pace.is_pressed, "once pressed, epochs stay bounded: the backlog is worked off in even steps"


def test_an_epoch_without_rows_teaches_nothing():
    """Neither does one that took no time."""
    pace = observed(Pace(), 1000, 2.0, 1.0)
    assert observed(pace, 0, 3.0, 1.0) == pace
    assert observed(pace, 10, 0.0, 1.0) == pace


def test_the_users_limit_holds_too():
    """The smaller of both."""
    pressed, calm = observed(Pace(), 1000, 2.0, 1.0), observed(Pace(), 1000, 0.5, 1.0)
    assert row_limit(pressed, 1.0, 100) == 100
    assert row_limit(pressed, 1.0, 10_000) == 450
    assert row_limit(calm, 1.0, 10_000) == 10_000


def test_without_interval_there_is_no_pressure():
    """As fast as possible means that no epoch is too long."""
    pace = observed(Pace(), 1000, took_s=50.0, interval_s=0.0)
    assert not pace.is_pressed
    assert row_limit(observed(Pace(), 1000, 2.0, 1.0), 0.0, None) is None


def test_the_next_epoch_begins_an_interval_after_the_last_began():
    """An epoch that took longer is followed at once."""
    assert wait_s(started_s=10.0, now_s=10.3, interval_s=1.0) == pytest.approx(0.7)
    assert wait_s(started_s=10.0, now_s=12.0, interval_s=1.0) == 0.0


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0.001, 100)), max_size=20), st.floats(0.01, 10), st.integers(1, 10**6))
def test_a_bound_is_never_below_one_row_nor_above_the_users(epochs, interval_s, configured):
    """However slow the job, it moves on; however fast, the user's word counts."""
    pace = Pace()
    for rows, took_s in epochs:
        pace = observed(pace, rows, took_s, interval_s)
    limit = row_limit(pace, interval_s, configured)
    assert limit is not None and 1 <= limit <= configured


@given(st.floats(10, 10_000), st.integers(1, 10**6))
def test_a_pressed_job_settles_at_epochs_that_fit_their_interval(rows_per_s, first_rows):
    """With unlimited input and a steady pace, epochs soon take no longer than the interval."""
    pace, took_s = Pace(), 0.0
    rows = first_rows
    for _ in range(10):
        took_s = rows / rows_per_s
        pace = observed(pace, rows, took_s, 1.0)
        rows = row_limit(pace, 1.0, None) or first_rows
    assert took_s <= 1.0 + 1 / rows_per_s


def test_what_is_normal_is_learnt_only_while_everything_is_live():
    """Epochs are shorter while much is down; readers are used to the others."""
    pace = observed(Pace(), 1000, took_s=2.0, interval_s=5.0)
    pace = observed(pace, 1000, took_s=0.5, interval_s=5.0, is_whole=False)
    assert pace.normal_s == 2.0
    assert pace.took_s < 2.0


def test_an_epoch_that_took_all_it_might_is_followed_at_once():
    """More is waiting; without a limit an epoch takes all there is."""
    assert is_full(100, 100)
    assert not is_full(99, 100)
    assert not is_full(100, None)
