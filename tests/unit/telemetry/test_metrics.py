"""Metrics are functions of events: the tests write the events down."""

import pytest

from resurge.telemetry import metrics
from resurge.telemetry.events import CatchUpFinished, JobStopped, Warned
from resurge.telemetry.metrics import Band, Point, RunningTime
from tests.support.telemetry import START_S, checkpoint, epoch, started, steady_run


def test_latency_leaves_out_epochs_that_were_run_again():
    """Rebuilding state after a restart is not a delay that any reader saw."""
    events = [started(), epoch(1), epoch(2, latency_s={"busy": 1.0, "quiet": 3.0}), started(), epoch(2, replayed=True)]
    assert metrics.latency(events)["quiet"] == [Point(START_S + 1, 0.6), Point(START_S + 2, 3.0)]
    assert metrics.latency_spread(events)["busy"] == (0.6, 1.0, 20)


def test_a_query_that_showed_nothing_in_an_epoch_has_no_latency_there():
    """Queries that are down leave gaps, not zeros."""
    events = [epoch(1), epoch(2, latency_s={"busy": 0.5})]
    assert [len(metrics.latency(events)[query]) for query in ("busy", "quiet")] == [2, 1]


def test_what_a_query_showed_when_it_had_caught_up_is_outage_not_steady_state():
    """Readers saw those rows late; the usual latency is another question."""
    events = [epoch(1), epoch(2, latency_s={"busy": 0.6}), CatchUpFinished(START_S + 9, 2, 2, 1.0, 3, 0, 0, {"quiet": [7.6]})]
    assert metrics.latency(events)["quiet"] == [Point(START_S + 1, 0.6)]
    assert metrics.latency(events, caught_up=True)["quiet"] == [Point(START_S + 1, 0.6), Point(START_S + 9, 7.6)]


def test_rows_and_latency_are_those_that_a_reader_of_the_sink_measures():
    """A query that was down for epoch 2 publishes its rows late; they count, with the time that they took."""
    step = CatchUpFinished(START_S + 9, 2, 2, 1.0, 3, 0, 0, {"quiet": [7.6]}, published={"quiet": {2: 500}})
    down = epoch(2, latency_s={"busy": 0.6}, query_rows={"busy": 10, "quiet": 1})
    events = [started(), epoch(1), down, step]
    (quiet,) = [summary for summary in metrics.summaries(events) if summary.query == "quiet"]
    assert quiet.rows == 2 + 1 + 500
    late_s = START_S + 9 - down.arrival_s
    assert quiet.latency_s == (late_s, late_s, 502)


def test_rows_of_an_epoch_that_was_run_again_count_once():
    """The last committed epoch may be shown a second time after a crash."""
    events = [epoch(1), epoch(2), started(), epoch(2, replayed=True, query_rows={"busy": 10, "quiet": 0})]
    assert metrics.query_rows(events) == {"busy": 20, "quiet": 4}
    assert metrics.rows_read(events) == 200


def test_throughput_includes_waits_between_epochs_and_pace_does_not():
    """A job that waits for its interval could do more than it does."""
    events = [started(), epoch(1), epoch(2), epoch(4)]
    assert [point.value for point in metrics.throughput(events)] == pytest.approx([100, 100, 50])
    assert [point.value for point in metrics.pace(events)] == pytest.approx([200, 200, 200])


def test_a_pause_between_two_runs_does_not_lower_throughput():
    """A driver's first epoch is measured from its own start."""
    events = [started(), epoch(1), started(START_S + 900), epoch(2, START_S + 901)]
    assert [point.value for point in metrics.throughput(events)] == pytest.approx([100, 100])


def test_steady_pace_is_the_median_of_the_last_half():
    """Warming up does not count."""
    events = [epoch(1, took_s=50.0), epoch(2, took_s=9.0), epoch(3), epoch(4)]
    assert metrics.steady_rows_per_s(events) == pytest.approx(200)
    assert metrics.steady_rows_per_s([]) is None


def test_lag_is_only_known_where_sources_tell():
    """An unknown lag is not a lag of zero."""
    assert metrics.lag([epoch(1, lag=None), epoch(2, lag=7)]) == [Point(START_S + 2, 7)]


def test_age_of_the_last_checkpoint():
    """Before the first checkpoint there is no age."""
    assert metrics.checkpoint_age_s([epoch(1)], START_S) is None
    assert metrics.checkpoint_age_s([checkpoint(1), checkpoint(5)], START_S + 15.1) == pytest.approx(10)


def test_rolling_band_covers_only_the_last_points():
    """An old outlier leaves the band."""
    points = [Point(at, value) for at, value in enumerate([9.0, 1.0, 1.0, 1.0])]
    bands = metrics.rolling(points, 3)
    assert [band.at_s for band in bands] == [0, 1, 2, 3]
    assert bands[0] == Band(0, 9.0, 9.0)
    assert bands[1].p99 == pytest.approx(8.92)
    assert bands[3] == Band(3, 1.0, 1.0)


def test_snapshot_of_a_run():
    """What the live view shows comes from events alone."""
    now = metrics.snapshot(steady_run(7), START_S + 8.1)
    assert (now.job, now.epoch, now.rows, now.checkpoint_epoch) == ("trending", 7, 700, 5)
    assert now.checkpoint_age_s == pytest.approx(3.0)
    assert [(query.query, query.priority, query.rows) for query in now.queries] == [("busy", 5, 70), ("quiet", 1, 14)]


def test_snapshot_of_a_resumed_run_knows_the_checkpoint_it_came_from():
    """Its age is not known: another run made it."""
    now = metrics.snapshot([started(resumed=4)], START_S)
    assert (now.epoch, now.checkpoint_epoch, now.checkpoint_age_s) == (4, 4, None)


def test_snapshot_before_the_first_epoch_knows_nothing():
    """Nothing is invented."""
    now = metrics.snapshot([], 0.0)
    assert (now.epoch, now.rows_per_s, now.latency_s, now.lag_rows, now.checkpoint_age_s) == (0, None, None, None, None)


def test_running_time_cuts_out_a_pause_but_not_an_outage():
    """Time between an orderly stop and the next start is nobody's latency; time after a crash is."""
    stopped = [started(), epoch(1), JobStopped(START_S + 2, 1, ""), started(START_S + 1000), epoch(2, START_S + 1001)]
    time = RunningTime(stopped)
    assert (time.at(START_S + 1), time.at(START_S + 1001), time.restarts_s) == (1, 3, [2])
    crashed = [started(), epoch(1), started(START_S + 1000), epoch(2, START_S + 1001)]
    assert RunningTime(crashed).at(START_S + 1001) == 1001
    assert RunningTime([]).at(5.0) == 0.0


def test_warnings_are_kept_in_order():
    """Every warning is shown, not only the last."""
    events = [Warned(1.0, "first"), epoch(1), Warned(2.0, "second")]
    assert [warning.message for warning in metrics.warnings(events)] == ["first", "second"]
