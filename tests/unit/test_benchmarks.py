"""Estimators of the benchmarks, on figures written down."""

import random

import duckdb
import pytest

from resurge.benchmarks import driver, state
from resurge.benchmarks.growth import ratios
from resurge.benchmarks.latency import Batch, latencies_s
from resurge.benchmarks.plain_program import updates
from resurge.benchmarks.workload import Epoch, Workload, steady_rate, window_s


def test_checkpoint_overhead_is_found_in_noise():
    """Two per cent stay two per cent, give or take a half, when epochs vary by a tenth and some take twice as long."""
    rng = random.Random(1)
    took = []
    for index in range(1, 161):
        usual = 0.1 * rng.uniform(0.95, 1.05) * (2 if rng.random() < 0.03 else 1)
        took.append(usual + (0.02 if index % state.CHECKPOINT_INTERVAL == 0 else 0))
    assert state.checkpoint_overhead(took) == pytest.approx(0.02, abs=0.005)


def test_latency_of_a_row_ends_with_the_batch_that_holds_it():
    """Files of ten rows; the first batch has two of them, the second one more, and the last has not come yet."""
    found = latencies_s([0.0, 1.0, 2.0, 3.0], 10, [Batch(20, 1.5), Batch(30, 2.2)])
    assert found == pytest.approx([1.5, 0.5, 0.2])


def test_growth_says_nothing_of_what_was_not_measured():
    """A ratio needs both of its settings."""
    assert ratios({(15, 2): 0.5, (15, 64): 0.6}) == {"key_group_ratio": 1.2}
    assert ratios({(200, 8): 1.0, (15, 8): 0.26}) == {"per_query_ms": 4.0}


def test_steady_rate_counts_the_posts_that_an_epoch_had():
    """The first epochs of a job are small; they say nothing of its steady rate."""
    epochs = [Epoch(20, 1.0), Epoch(40, 1.0), Epoch(400, 2.0), Epoch(400, 2.0), Epoch(400, 4.0)]
    assert steady_rate(epochs) == pytest.approx(150)


@pytest.mark.parametrize("queries", [1, 3])
def test_the_plain_program_counts_what_duckdb_counts(queries, tmp_path):
    """The last update of each tag and window, over all epochs, for windows that share panes and for one that has its own."""
    workload = Workload(tmp_path, posts=60_000, posts_per_epoch=20_000)
    workload.write()
    found = [{} for _ in range(queries)]
    for epoch in updates(workload, queries):
        for query, table in enumerate(epoch):
            columns = (table[name].to_pylist() for name in ("tag", "start", "n"))
            found[query] |= {(tag, start): n for tag, start, n in zip(*columns, strict=True)}
    for query in range(queries):
        size, slide = window_s(query)
        rows = duckdb.sql(
            f"with tags as (select epoch_us(ts) // 1000000 as s, unnest(tags) as tag from '{tmp_path}/*.parquet'), "
            f"hits as (select tag, (floor(s / {slide})::bigint - back) * {slide} as start, s from tags, "
            f"(select unnest(range(0, {-(-size // slide)})) as back)) "
            f"select tag, start, count(*) from hits where s < start + {size} group by tag, start"
        ).fetchall()
        assert found[query] == {(tag, start): n for tag, start, n in rows}


def test_the_driver_is_measured_without_tasks():
    """Every setting has a figure, and the driver's work is real: it commits and checkpoints."""
    found = driver.measure([20], [4], lambda message: None)
    assert [(row["partitions"], row["slots"]) for row in found["results"]] == [(20, 4)]
    assert found["results"][0]["driver_ms"] > 0
