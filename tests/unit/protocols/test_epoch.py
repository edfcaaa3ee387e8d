"""Pace and back-pressure: how much an epoch may take, and when the next one begins."""

import random
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resurge.protocols.epoch import (
    FIRST_ROWS,
    TARGET_WITHOUT_INTERVAL_S,
    Pace,
    costs,
    is_full,
    observed,
    row_limit,
    shares,
    wait_s,
)

WARM = Pace(epochs=1)


@dataclass(frozen=True)
class CostModel:
    """What an epoch takes: a fixed cost, a cost per row, noise, and more for the first epochs of a driver."""

    fixed_s: float
    per_row_s: float
    noise: float = 0.0
    cold_s: float = 0.0

    def took_s(self, rows: int, epoch: int, rng: random.Random) -> float:
        cold_s = self.cold_s if epoch == 0 else self.cold_s / 10 if epoch < 3 else 0.0
        return (self.fixed_s + self.per_row_s * rows) * rng.lognormvariate(0, self.noise) + cold_s

    def sustainable_rows(self, interval_s: float) -> float:
        """What fits an interval; where the fixed cost leaves little of it, what takes as long as the fixed cost."""
        fitting = max((interval_s or TARGET_WITHOUT_INTERVAL_S) * 0.9 - self.fixed_s, self.fixed_s) / self.per_row_s
        return fitting if interval_s else max(fitting, FIRST_ROWS)


def epochs_of(
    model: CostModel, interval_s: float, *, configured: int | None = None, first: int = FIRST_ROWS, epochs: int = 200
) -> list[tuple[int, float]]:
    """Rows and seconds of each epoch of a job whose input never ends."""
    rng, pace, found = random.Random(7), Pace(limit_rows=first if interval_s else max(first, FIRST_ROWS)), []
    for epoch in range(epochs):
        rows = row_limit(pace, configured)
        found.append((rows, model.took_s(rows, epoch, rng)))
        pace = observed(pace, *found[-1], interval_s)
    return found


def rows_per_s(epochs: list[tuple[int, float]]) -> float:
    return sum(rows for rows, _ in epochs) / sum(took_s for _, took_s in epochs)


MODELS = st.builds(CostModel, st.floats(0.001, 3.0), st.floats(1e-6, 1e-2), st.just(0.0), st.floats(0, 10))
INTERVALS = st.sampled_from([0.0, 0.1, 0.5, 1.0, 5.0])
FIRSTS = st.sampled_from([1, 100, FIRST_ROWS, 10**7])


def test_the_first_epoch_is_bounded_and_epochs_grow_from_there():
    """An epoch is logged before it runs: one that is too large for memory would fail again at every start."""
    assert row_limit(Pace(), None) == FIRST_ROWS
    sizes = [rows for rows, _ in epochs_of(CostModel(0.05, 1e-6), 1.0, epochs=12)]
    assert sizes[0] == FIRST_ROWS
    assert all(after <= 2 * before + 1 for before, after in pairwise(sizes))
    assert sizes[-1] == pytest.approx(850_000, rel=0.05)


def test_a_cold_first_epoch_does_not_shrink_the_next_ones():
    """2,000 rows in 3 s say nothing about what rows cost: worker processes were being started. Lukewarm ones are forgotten."""
    sizes = [rows for rows, _ in epochs_of(CostModel(0.01, 2e-6, cold_s=3.0), 0.1, configured=2000, epochs=25)]
    assert sizes[:2] == [2000, 2000]
    assert min(sizes) >= 500
    assert sizes[6:] == [2000] * 19


@given(MODELS, INTERVALS, FIRSTS)
@settings(max_examples=200, deadline=None)
def test_the_limit_settles_within_a_factor_of_three_of_what_an_interval_takes(model, interval_s, first):
    """From above and from below, with a cold start, whatever the costs."""
    wanted = model.sustainable_rows(interval_s)
    for rows, _ in epochs_of(model, interval_s, first=first)[60:]:
        assert wanted / 3 - 2 <= rows <= 2 * wanted + 3


@given(MODELS, INTERVALS, FIRSTS, st.floats(0.05, 0.4))
@settings(max_examples=200, deadline=None)
def test_noise_never_starves_a_job(model, interval_s, first, noise):
    """It keeps at least a third of the pace that the best epochs would have, and its epochs are not huge."""
    noisy = CostModel(model.fixed_s, model.per_row_s, noise, model.cold_s)
    best_rows = max(1.0, model.sustainable_rows(interval_s))
    best_rows_per_s = best_rows / (model.fixed_s + model.per_row_s * best_rows)
    settled = epochs_of(noisy, interval_s, first=first)[60:]
    assert rows_per_s(settled) >= best_rows_per_s / 3
    assert median(rows for rows, _ in settled) <= 3 * best_rows


def test_a_limit_that_was_far_too_small_grows_back():
    """After a time of load on the machine, epochs of 100 rows grow until the interval is used again."""
    rng, pace = random.Random(3), WARM
    slow, fast = CostModel(0.08, 1e-3, 0.2), CostModel(0.02, 1e-5, 0.2)
    for epoch in range(40):
        rows = row_limit(pace, 40_000)
        pace = observed(pace, rows, slow.took_s(rows, epoch + 3, rng), 0.1)
    assert row_limit(pace, 40_000) < 300
    for epoch in range(20):
        rows = row_limit(pace, 40_000)
        pace = observed(pace, rows, fast.took_s(rows, epoch + 3, rng), 0.1)
    assert row_limit(pace, 40_000) > 3500


def test_an_epoch_that_is_too_long_bounds_the_next():
    """The bound is what fits into nine tenths of the interval at the pace seen, but at least half of what was taken."""
    assert row_limit(observed(WARM, 1000, took_s=1.5, interval_s=1.0), None) == 600
    assert row_limit(observed(WARM, 1000, took_s=9.0, interval_s=1.0), None) == 500


def test_the_fixed_cost_of_an_epoch_is_told_from_that_of_its_rows():
    """Epochs of different sizes show what an epoch costs without rows; the bound leaves room for it."""
    pace = WARM
    for rows in (1000, 2000, 1000, 2000):
        pace = observed(pace, rows, took_s=0.2 + rows / 1000, interval_s=1.0)
    fixed_s, per_row_s = costs(pace)
    assert (fixed_s, per_row_s) == (pytest.approx(0.2, abs=1e-6), pytest.approx(0.001, abs=1e-9))


def test_an_epoch_without_rows_teaches_nothing():
    """Neither does one that took no time."""
    pace = observed(WARM, 1000, 2.0, 1.0)
    assert observed(pace, 0, 3.0, 1.0) == pace
    assert observed(pace, 10, 0.0, 1.0) == pace


def test_an_epoch_that_had_little_input_says_nothing_about_large_ones():
    """The limit stays where it was."""
    pace = WARM
    for _ in range(50):
        pace = observed(pace, 10, took_s=0.3, interval_s=1.0)
    assert row_limit(pace, None) == FIRST_ROWS


def test_the_users_limit_holds_too():
    """The smaller of both."""
    assert row_limit(Pace(), 100) == 100
    assert row_limit(observed(WARM, 1000, 1.5, 1.0), 10_000) == 600


def test_without_an_interval_no_epoch_is_too_long():
    """How epochs are cut does not depend on how busy the machine is, unless they are so large that memory matters."""
    pace = WARM
    for _ in range(20):
        pace = observed(pace, 100, took_s=30.0, interval_s=0.0)
    assert row_limit(pace, None) == FIRST_ROWS


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
    assert 1 <= row_limit(pace, configured) <= configured


def test_what_is_normal_is_learnt_only_while_everything_is_live():
    """Epochs are shorter while much is down; readers are used to the others."""
    pace = observed(WARM, 1000, took_s=2.0, interval_s=5.0)
    pace = observed(pace, 1000, took_s=0.5, interval_s=5.0, is_whole=False)
    assert pace.normal_s == 2.0
    assert pace.took_s < 2.0


def test_an_epoch_that_took_all_it_might_is_followed_at_once():
    """More is waiting; without a limit an epoch takes all there is."""
    assert is_full(100, 100)
    assert not is_full(99, 100)
    assert not is_full(100, None)


@given(
    st.integers(1, 10**6), st.dictionaries(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 10**5), min_size=1, max_size=8)
)
def test_sources_share_a_limit_without_exceeding_it(limit, demands):
    """Nobody gets nothing, all together get the limit (a row each, if it is that small), and who needs little leaves it."""
    found = shares(limit, demands)
    assert sorted(found) == sorted(demands)
    assert all(share >= 1 for share in found.values())
    assert sum(found.values()) == limit or limit < len(demands) ** 2
    fair = limit // len(demands)
    for name, demand in demands.items():
        assert found[name] >= min(fair, demand if demand is not None else fair) or found[name] == 1
