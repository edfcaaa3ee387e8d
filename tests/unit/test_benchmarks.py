"""Estimators of the benchmarks, on figures written down."""

import random

import duckdb
import pytest

from resurge.benchmarks import balance, driver, elastic, state
from resurge.benchmarks.growth import ratios
from resurge.benchmarks.latency import Batch, latencies_s
from resurge.benchmarks.plain_program import updates
from resurge.benchmarks.workload import Epoch, Workload, steady_rate, window_s


def test_checkpoint_overhead_is_found_in_noise():
    """Two per cent stay two per cent, give or take a third, when epochs vary by a tenth and one of a hundred takes ten times as long."""
    assert [found_with(seed) for seed in range(20)] == pytest.approx([0.0185] * 20, abs=0.006)


def found_with(seed: int) -> float:
    """What is found in epochs of which checkpoints make the run two per cent longer, the long ones left aside."""
    rng = random.Random(seed)

    def usual() -> float:
        return 0.1 * rng.uniform(0.95, 1.05) * (10 if rng.random() < 0.01 else 1)

    def between_two_checkpoints() -> list[state.Step]:
        # Four epochs while one is written, of which two wait for it, and one afterwards that does.
        extra_s = [0.08, 0, 0.04, 0, 0, 0.08, *[0.0] * 94]
        return [state.Step(usual() + more_s, at < 4) for at, more_s in enumerate(extra_s)]

    return state.checkpoint_overhead([step for _ in range(9) for step in between_two_checkpoints()])


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
    assert found["results"][0]["mean_ms"] > 0 and found["results"][0]["driver_ms"] > 0


def balance_run(imbalances, phase_s=40.0):
    """Epochs of a second on two nodes, of which the first has so many times its fair share."""
    phases = balance.Phases(phase_s, 1, began_s=0.0)
    epochs = [balance.Epoch(float(at), 1.0, {"a": value, "b": 2.0 - value}, {}) for at, value in enumerate(imbalances, 1)]
    return balance.Run(phases, epochs)


def test_balance_is_judged_half_a_minute_after_keys_changed_places():
    """Even from the tenth second on: that is when it was even, and what came before does not count as imbalance."""
    warm_up = int(balance.WARM_UP_S)
    run = balance_run([1.9] * (warm_up + 9) + [1.1] * 30)
    found = balance.figures(run)
    assert found["imbalance"] == pytest.approx(1.1)
    # The median of five epochs is low with the third of them.
    assert found["even_after_s"] == [pytest.approx(12.0)]
    assert found["rows_per_s"] == pytest.approx(balance.ROWS_PER_EPOCH, rel=0.05)


def test_a_load_that_stays_uneven_is_never_even():
    """Of a run without balancing it is told that it never was."""
    found = balance.figures(balance_run([1.8] * (int(balance.WARM_UP_S) + 39)))
    assert found["even_after_s"] == [None] and found["imbalance"] == pytest.approx(1.8)


def test_keys_change_their_places_with_the_phase_and_are_read_again_alike():
    """A split is a pure function; in another phase another key is the most frequent, as frequent as before."""
    reader = balance.ShiftingReader(None)
    first, again, later = (reader.read_frames((0, 20_000, phase))[0] for phase in (1, 1, 2))
    assert first.equals(again)
    top = [frame["key"].value_counts(sort=True).row(0) for frame in (first, later)]
    assert top[0][0] != top[1][0] and top[0][1] == top[1][1] == pytest.approx(5_000, rel=0.1)


def test_a_key_group_that_is_hot_bounds_the_balance():
    """Half of all rows in one key group of four nodes' load: twice the mean, wherever it lies."""
    assert balance.ideal_imbalance({0: 300, 1: 100, 2: 100, 3: 100}) == pytest.approx(2.0)


def test_a_new_node_carries_its_load_when_it_uses_most_of_the_average():
    """Nothing, little, then 85 % of the mean of three."""
    used = [{"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0, "c": 0.5}, {"a": 0.9, "b": 0.9, "c": 0.7}]
    epochs = [balance.Epoch(float(at), 1.0, nodes, {}) for at, nodes in enumerate(used, 11)]
    assert elastic.carried_after_s(epochs, "c", 10.5) == pytest.approx(2.5)
    assert elastic.carried_after_s(epochs[:2], "c", 10.5) is None


def test_the_latency_that_counts_is_that_of_the_query_that_suffers_most():
    """Medians of each query against its own normal."""
    normal, during = {"a": [1.0, 1.0, 5.0], "b": [2.0]}, {"a": [1.1], "b": [3.0, 3.0, 9.0], "new": [9.0]}
    assert elastic.latency_ratio(normal, during) == pytest.approx(1.5)
