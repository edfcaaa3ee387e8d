"""Sets of epochs behave like sets of numbers, and stay small."""

import random

import pytest

from resurge.protocols.epoch_sets import EpochSet


@pytest.mark.parametrize("seed", range(30))
def test_spans_behave_like_a_set_of_numbers(seed: int) -> None:
    """Whatever is added and removed, in whatever order."""
    rng = random.Random(seed)
    plain: set[int] = set()
    spans = EpochSet()
    for _ in range(60):
        start = rng.randrange(30)
        span = range(start, start + rng.randrange(6))
        if rng.random() < 0.7:
            plain |= set(span)
            spans = spans.with_span(span)
        else:
            plain -= set(span)
            spans = spans.without_span(span)
        assert spans == EpochSet.of(plain)
        assert [epoch in spans for epoch in range(40)] == [epoch in plain for epoch in range(40)]
        first = rng.randrange(30)
        wanted = range(first, first + rng.randrange(10))
        assert spans.last_missing(wanted) == max(set(wanted) - plain, default=None)


def test_an_outage_of_many_epochs_is_one_span() -> None:
    """Added one by one."""
    spans = EpochSet()
    for epoch in range(10_000):
        spans = spans.with_span(range(epoch, epoch + 1))
    assert spans.spans == (range(10_000),)
