"""Generated sources: rows are a pure function of their number, and only the driver looks at the clock."""

import polars as pl
import pytest

from resurge.connectors.contracts import ReadLimit
from resurge.connectors.paced import Pace, RowRange
from resurge.connectors.post_generator import BLOCK_POSTS, PostGenerator, expected_distinct, vocabulary_for
from resurge.connectors.posts import POST_SCHEMA, posts, write_posts
from resurge.connectors.rate import RATE_SCHEMA, RateReader, rate
from resurge.errors import SourceError, TopologyError


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


def test_rate_rows_arrive_with_the_clock_within_the_limit():
    """The first question starts the time; the offset carries it from then on."""
    clock = Clock()
    reader = RateReader("rate", Pace(10), clock)
    start = reader.initialOffset()
    assert reader.latest_offset(start, ReadLimit()) == start
    clock.now_s += 2
    end = reader.latest_offset(start, ReadLimit(15))
    assert end == {"rows": 15, "started_at": 1_700_000_000.0}
    assert reader.latest_offset(end, ReadLimit()) == {"rows": 20, "started_at": 1_700_000_000.0}
    assert reader.rows_between(end, reader.newest_offset(end)) == 5
    assert reader.arrival_s(start, end) == pytest.approx(1_700_000_000.7)


def test_a_rate_source_goes_on_after_a_restart_with_what_it_missed():
    """A new driver has only the logged offset."""
    clock = Clock()
    clock.now_s += 100
    reader = RateReader("rate", Pace(10), clock)
    assert reader.latest_offset({"rows": 20, "started_at": 1_700_000_000.0}, ReadLimit(500))["rows"] == 520
    clock.now_s -= 1000
    assert reader.latest_offset({"rows": 20, "started_at": 1_700_000_000.0}, ReadLimit())["rows"] == 20


def test_rate_rows_are_the_same_in_any_split(log, epochs):
    """Arrival and value follow from the number alone."""
    start, end = {"rows": 3, "started_at": 1000.0}, {"rows": 50, "started_at": 1000.0}
    one, many = (rate(7, splits=splits).reader(log) for splits in (1, 9))
    good, bad = epochs.read(one, RATE_SCHEMA, start, end)
    assert good.equals(epochs.read(many, RATE_SCHEMA, start, end)[0]) and bad.height == 0
    assert good["value"].to_list() == list(range(3, 50))
    assert good["arrival"].dt.epoch("us").to_list()[:2] == [1_000_428_571, 1_000_571_428]
    assert one.partitions(end, end) == []


def test_an_executor_has_no_clock(log):
    """A pickled reader cannot be asked how much has arrived."""
    import pickle

    with pytest.raises(SourceError, match="only the driver has the clock"):
        pickle.loads(pickle.dumps(rate(5).reader(log))).latest_offset({"rows": 0, "started_at": None}, ReadLimit())


def test_posts_without_clock_come_so_many_per_epoch_until_the_total(log, epochs):
    """And stop there."""
    source = posts(total=25_000, posts_per_epoch=10_000, seed=3)
    reader = source.reader(log)
    results = [good for good, _, _ in epochs.run(reader, POST_SCHEMA)]
    assert [good.height for good in results] == [10_000, 10_000, 5_000]
    times = pl.concat(results)["time"]
    assert times.diff().drop_nulls().unique().dt.total_microseconds().to_list() == [1000]
    assert reader.arrival_s(reader.initialOffset(), {"rows": 5, "started_at": None}) is None
    assert reader.newest_offset(reader.initialOffset())["rows"] == 25_000
    assert reader.newest_offset({"rows": 25_000, "started_at": None})["rows"] == 25_000


def test_posts_with_a_rate_carry_their_arrival_time(log):
    """Event time is arrival time."""
    reader = posts(posts_per_second=1000).reader(log)
    frame = reader.rows(RowRange(5000, 5003, 1_700_000_000.0))
    assert [time.timestamp() for time in frame["time"].dt.replace_time_zone("UTC")] == [
        1_700_000_005.0,
        1_700_000_005.001,
        1_700_000_005.002,
    ]


def test_a_post_is_the_same_in_any_range_and_other_with_another_seed():
    """Also across the borders of blocks."""
    generator = PostGenerator(7, 1.0, 5_000)
    users, tags = generator.users_and_tags(0, 3 * BLOCK_POSTS)
    for first, last in ((0, 1), (BLOCK_POSTS - 1, BLOCK_POSTS + 1), (5000, 9001), (BLOCK_POSTS, 2 * BLOCK_POSTS), (9, 9)):
        some_users, some_tags = generator.users_and_tags(first, last)
        assert some_users.equals(users[first:last]) and some_tags.equals(tags[first:last])
    assert not PostGenerator(8, 1.0, 5_000).users_and_tags(0, 100)[1].equals(tags[:100])


def test_posts_have_the_published_statistics():
    """569,382 posts, 894,098 hashtags (1.57 per post), 309,555 of them distinct: each within 1 %."""
    _, tags = PostGenerator().users_and_tags(0, 569_382)
    every_tag = tags.explode()
    assert tags.list.len().min() == 1
    assert len(every_tag) == pytest.approx(894_098, rel=0.01)
    assert every_tag.n_unique() == pytest.approx(309_555, rel=0.01)


def test_tags_are_zipf_distributed():
    """The first tag is drawn 2**s times as often as the second."""
    _, tags = PostGenerator(1, 1.3, 1000).users_and_tags(0, 200_000)
    counts = dict(tags.explode().value_counts().rows())
    assert counts["tag0"] / counts["tag1"] == pytest.approx(2**1.3, rel=0.05)


def test_the_vocabulary_is_found_for_a_number_of_distinct_tags():
    """Or refused where the distribution is too steep."""
    assert expected_distinct(vocabulary_for(50_000, 0.5), 0.5) == pytest.approx(50_000, rel=0.01)
    with pytest.raises(TopologyError, match="choose a smaller exponent"):
        vocabulary_for(309_555, 1.5)


def test_generators_that_cannot_run_are_refused():
    """No speed and no bound, no rows, no splits, a seed that is none."""
    with pytest.raises(TopologyError, match="no end and no speed"):
        posts()
    with pytest.raises(TopologyError, match="rows per second of a rate source are 0"):
        rate(0)
    with pytest.raises(TopologyError, match="splits of a rate source is 0"):
        rate(5, splits=0)
    with pytest.raises(TopologyError, match="the seed of posts is -1"):
        posts(5, seed=-1)


def test_written_posts_are_the_generated_ones(tmp_path):
    """Whatever the size of the files; nothing unfinished is left."""
    small = write_posts(tmp_path / "small", 10_000, 3_000, seed=5)
    [large] = write_posts(tmp_path / "large", 10_000, 20_000, seed=5)
    assert [path.name for path in small] == [f"posts-0000{n}.parquet" for n in range(4)]
    assert sorted((tmp_path / "small").iterdir()) == small
    frame = pl.concat([pl.read_parquet(path) for path in small])
    assert frame.equals(pl.read_parquet(large))
    assert frame.schema == pl.Schema({"ts": pl.Datetime("us"), "tags": pl.List(pl.String)})
    assert frame["ts"].diff().drop_nulls().unique().dt.total_microseconds().to_list() == [1000]
