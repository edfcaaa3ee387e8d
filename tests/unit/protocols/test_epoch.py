"""Pace and back-pressure: how much an epoch may take, and when the next one begins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resurge.protocols.epoch import Pace, observed, row_limit, wait_s


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
    assert pace == Pace(500.0, True)
    assert row_limit(pace, 1.0, None) == 450


def test_the_pace_follows_what_is_seen_without_forgetting_at_once():
    """A new observation counts for four tenths."""
    pace = observed(Pace(500.0, True), 1000, took_s=1.0, interval_s=1.0)
    assert pace.rows_per_s == pytest.approx(0.6 * 500 + 0.4 * 1000)
    assert pace.is_pressed, "once pressed, epochs stay bounded: the backlog is worked off in even steps"


def test_an_epoch_without_rows_teaches_nothing():
    """Neither does one that took no time."""
    pace = Pace(500.0, True)
    assert observed(pace, 0, 3.0, 1.0) == pace
    assert observed(pace, 10, 0.0, 1.0) == pace


def test_the_users_limit_holds_too():
    """The smaller of both."""
    pressed = Pace(500.0, True)
    assert row_limit(pressed, 1.0, 100) == 100
    assert row_limit(pressed, 1.0, 10_000) == 450
    assert row_limit(Pace(500.0, False), 1.0, 10_000) == 10_000


def test_without_interval_there_is_no_pressure():
    """As fast as possible means that no epoch is too long."""
    pace = observed(Pace(), 1000, took_s=50.0, interval_s=0.0)
    assert not pace.is_pressed
    assert row_limit(Pace(1.0, True), 0.0, None) is None


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
