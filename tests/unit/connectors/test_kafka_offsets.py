"""Offsets as plain values: no broker is needed to decide how far an epoch goes."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resurge.connectors.extras import check_extra
from resurge.connectors.kafka.offsets import TopicOffsets, checked_start, limited, ranges
from resurge.errors import TopologyError

OFFSETS = st.dictionaries(st.integers(0, 20), st.integers(0, 1000), min_size=1)


@given(OFFSETS, OFFSETS, st.integers(1, 3000))
def test_a_limited_epoch_takes_as_much_as_it_may_and_no_more(start, more, max_rows):
    """Never beyond what is there, never backwards, and exactly the limit where more waits."""
    begin = TopicOffsets("id", start)
    newest = TopicOffsets("id", {n: start.get(n, 0) + more.get(n, 0) for n in {*start, *more}})
    end = limited(begin, newest, max_rows)
    taken = {n: end.partitions[n] - start.get(n, 0) for n in newest.partitions}
    assert all(0 <= taken[n] <= more.get(n, 0) for n in taken)
    assert sum(taken.values()) == min(max_rows, sum(more.values()))
    assert sum(split.end - split.start for split in ranges(begin, end)) == sum(taken.values())
    assert TopicOffsets.of(end.as_offset()) == end


def test_starts_are_checked_where_they_are_said():
    """A start that nobody understands is refused on the line that has it."""
    assert checked_start(datetime(2024, 1, 1)).timestamp_ms == round(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)
    assert checked_start({1: 5, 0: 3}).partitions == ((0, 3), (1, 5))
    for wrong in ("newest", -1, {0: -1}, {"0": 1}, None):
        with pytest.raises(TopologyError, match="expected 'earliest', 'latest', a datetime"):
            checked_start(wrong)


def test_a_missing_client_library_is_told_with_its_extra():
    """The message is a command that helps."""
    with pytest.raises(
        TopologyError, match=r"source kafka\('a'\) needs the package 'no_such_client'.*pip install 'resurge\[kafka\]'"
    ):
        check_extra("no_such_client", "kafka", "source kafka('a')")
