"""The study of moving state, without a cluster: rows, the simulated moves, and what the summary says."""

import pytest

from resurge.model.requests import DIRECT, PRECOPY
from resurge.studies import migration_report as report
from resurge.studies.flights import flights
from resurge.studies.migration import FIRST_YEAR, ROWS_PER_S, FlightReader, Migration, delays_per_plane
from resurge.studies.simulated_migration import simulated_like, simulated_moves

FLIGHTS = 336_776


@pytest.fixture(scope="module")
def year(tmp_path_factory):
    path = tmp_path_factory.mktemp("flights") / "flights.parquet"
    year = flights()
    year.write_parquet(path)
    assert year.height == FLIGHTS
    return path


def move(how, state_rows, pause_s, replay_rows=4_000, *, moved=1.0, others=1.0, shipped=10_000_000):
    return Migration(how, state_rows, replay_rows, shipped, pause_s, 1.0, 0.1, moved, others, 1.5)


def test_years_follow_one_another_and_rows_are_numbered(year):
    """The same flights, a year later; a row is the same whenever it is read."""
    reader = FlightReader(str(year), 1_000_000)
    end = reader.latest_offset(reader.initialOffset(), _no_limit())
    assert end["rows"] == 500_000
    splits = reader.partitions(reader.initialOffset(), end)
    rows = [reader.rows(split) for split in splits]
    assert sum(frame.height for frame in rows) == 500_000
    last = rows[-1].row(-1, named=True)
    assert (last["year"], last["number"]) == (FIRST_YEAR + 1, 499_999)
    assert (
        rows[-1].row(-1)[0] == reader.rows(splits[0])[499_999 - FLIGHTS, "plane"] if splits[0].last > 499_999 - FLIGHTS else True
    )
    later = {"rows": 1_008_000, "started_at": 100.0}
    assert reader.arrival_s({"rows": 1_000_000, "started_at": 100.0}, later) == pytest.approx(100.0 + 3_999.5 / ROWS_PER_S)
    assert delays_per_plane(year, 1).operators.keys() >= {"delays", "totals", "events"}


def _no_limit():
    from resurge.connectors.contracts import ReadLimit

    return ReadLimit(None)


def test_simulated_moves_pause_for_what_is_shipped_while_they_take_no_epochs():
    """Directly for all of the state, and for what they missed; with precopy for what a few epochs changed."""
    found = {(one.how, one.state_bytes): one for one in simulated_moves((1_000_000, 50_000_000), 50_000_000.0, 0.001)}
    assert 1.0 < found[DIRECT, 50_000_000].pause_s < 2.0
    assert 0.02 < found[DIRECT, 1_000_000].pause_s < 0.5
    assert found[PRECOPY, 50_000_000].pause_s < 0.02
    assert found[PRECOPY, 50_000_000].completion_s > 1.0
    assert found[PRECOPY, 50_000_000].longest_ratio < 1.5


def test_one_slow_move_of_three_does_not_count():
    """The figures of a setting are the medians of its moves."""
    moves = [move(DIRECT, 10_000, pause_s, shipped=size) for pause_s, size in ((0.3, 7), (9.0, 8), (0.4, 9))]
    [usual, other] = report.medians([*moves, move(DIRECT, 10_000, 1.0, 32_000)])
    assert (usual.pause_s, usual.shipped_bytes, other.pause_s) == (0.4, 8, 1.0)


def test_the_summary_says_what_was_reached_and_what_not(tmp_path):
    """Two per cent of the pause, but another query that suffers."""
    moves = [
        move(DIRECT, 4_000_000, 1.0),
        move(PRECOPY, 4_000_000, 0.02, shipped=10_300_000, others=1.3),
        move(DIRECT, 10_000, 0.01),
    ]
    simulated = simulated_like(moves)
    report.write_study(moves, simulated, tmp_path, "Moved.")
    text = (tmp_path / "summary.md").read_text()
    assert "**Reached**: the pause of precopy is 2.0% of direct's at 4,000,000 rows of state" in text
    assert "**Not reached**: queries that do not move have at most 1.30 times their latency" in text
    assert (tmp_path / "migration.png").stat().st_size > 1_000
    kept = report.results(moves, simulated)
    assert len(kept["moves"]) == 3 and list(kept["reached"].values()) == [True, True, True, False]
