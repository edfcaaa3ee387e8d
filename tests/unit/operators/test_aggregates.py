"""Aggregates of every type that is accepted: what comes out has the type that was declared, and the right value."""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import Stream, TopologyBuilder
from resurge.errors import JobError
from resurge.operators.aggregates import count, max_, mean, min_, sum_
from tests.support.engines import Bench, asked, finish
from tests.support.scripted import scripted

START = datetime(2024, 1, 1)
VALUES: dict[str, pl.Series] = {
    "Boolean": pl.Series([True, False, True]),
    "UInt8": pl.Series([200, 100, 150], dtype=pl.UInt8),
    "Float32": pl.Series([1.5, -2.5, 0.25], dtype=pl.Float32),
    "Float64": pl.Series([float("nan"), -2.5, 0.25]),
    "Decimal": pl.Series([Decimal("1.25"), Decimal("-7.50"), Decimal("99.99")], dtype=pl.Decimal(4, 2)),
    "String": pl.Series(["b", "", "c"]),
    "Binary": pl.Series([b"b", b"", b"c"]),
    "Date": pl.Series([date(2024, 1, 1), date(1969, 1, 1), date(2025, 1, 1)]),
    "Time": pl.Series([time(1), time(2, 3), time(4)]),
    "Datetime": pl.Series([START, datetime(1969, 1, 1), START]).dt.replace_time_zone("Europe/Berlin"),
    "Duration": pl.Series([timedelta(1), timedelta(0), timedelta(2)]),
    "Enum": pl.Series(["b", "a", "c"], dtype=pl.Enum(["c", "b", "a"])),
}


AGGREGATING: dict[str, Callable[..., Stream]] = {
    "aggregate": lambda rows, **parts: rows.aggregate("aggregate", key="k", **parts),
    "window": lambda rows, **parts: rows.window("window", "1h", key="k", **parts),
    "session": lambda rows, **parts: rows.session("session", "1h", key="k", emit="final", **parts),
}


def rows_of(values: pl.Series) -> pl.DataFrame:
    """All values of one key."""
    at = pl.Series([START] * len(values), dtype=pl.Datetime("us"))
    return pl.DataFrame({"at": at, "k": ["a"] * len(values), "v": values})


def last_values(values: pl.Series, folder: Path, **aggregates) -> dict[str, pl.DataFrame]:
    """What each operator has at the end, the values coming in two epochs, the first of two splits; types are as declared."""
    bench = Bench(folder)
    job = TopologyBuilder("types", key_groups=2)
    epochs = [[rows_of(values[:1]), rows_of(values[1:2])], [rows_of(values[2:])]]
    rows = job.source("rows", scripted(epochs), event_time="at")
    asking = {name: add(rows, **aggregates) for name, add in AGGREGATING.items()}
    topology = asked(job, bench.sink, asking)
    finish(bench.engine(topology))
    shown = bench.shown()
    for name in asking:
        assert dict(shown[name].drop("epoch").schema) == dict(topology.shapes[name].schema), name
    return {name: rows.tail(1).select(*aggregates) for name, rows in shown.items()}


@pytest.mark.parametrize("kind", VALUES)
def test_the_smallest_and_the_largest_of_every_type_are_those_of_all_rows(kind: str, tmp_path: Path) -> None:
    """However the rows are cut into splits and epochs."""
    values = VALUES[kind]
    wanted = rows_of(values).select(low=pl.col("v").min(), high=pl.col("v").max(), n=pl.len().cast(pl.Int64))
    for name, found in last_values(values, tmp_path, low=min_("v"), high=max_("v"), n=count()).items():
        assert found.equals(wanted), (name, found)


@pytest.mark.parametrize("kind", ["Boolean", "UInt8", "Float32", "Decimal"])
def test_sums_and_means_of_every_type_are_those_of_all_rows(kind: str, tmp_path: Path) -> None:
    """A decimal sum may have more digits than its column, and is declared so."""
    values = VALUES[kind]
    total = sum(values.to_list())
    for name, found in last_values(values, tmp_path, total=sum_("v"), middle=mean("v")).items():
        assert found.row(0)[0] == total, name
        assert found.row(0)[1] == pytest.approx(float(total) / len(values)), name


@pytest.mark.parametrize("cut", ["one split", "two splits", "two epochs"])
def test_a_decimal_sum_of_more_than_38_digits_fails_with_operator_and_column(cut: str, tmp_path: Path) -> None:
    """Where Polars would wrap around."""
    half = rows_of(pl.Series([Decimal("6" + "0" * 35), Decimal("0.01")], dtype=pl.Decimal(38, 2)))
    epochs = {"one split": [[pl.concat([half, half])]], "two splits": [[half, half]], "two epochs": [[half], [half]]}[cut]
    for name, add in AGGREGATING.items():
        bench = Bench(tmp_path / name)
        job = TopologyBuilder("decimals", key_groups=1)
        add(job.source("rows", scripted(epochs), event_time="at"), total=sum_("v")).query("out", sink=bench.sink)
        with pytest.raises(JobError, match=rf"operator '{name}'.*a sum of column 'v' does not fit; expected .* 38 digits"):
            finish(bench.engine(job.build()))


def test_a_function_that_declares_its_columns_is_not_asked_for_those_of_no_rows(tmp_path: Path) -> None:
    """One that fails on an empty table can be used, also where a split or an epoch is empty."""
    bench = Bench(tmp_path)
    job = TopologyBuilder("empty")
    frame = rows_of(pl.Series([1, 2]))
    rows = job.source("rows", scripted([[frame, frame.clear()], [frame]]))

    def first(table: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame({"v": [table.row(0)[2]]})

    rows.map("first", first, schema={"v": pl.Int64}).query("out", sink=bench.sink)
    finish(bench.engine(job.build()))
    assert bench.shown()["out"].rows() == [(1, 1), (2, 1)]
