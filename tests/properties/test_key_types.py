"""Keys of every type that is accepted: all keyed operators agree on which rows belong together; others are refused."""

import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from resurge.api.builder import Stream, TopologyBuilder
from resurge.errors import JobError, TopologyError
from resurge.operators.aggregates import count, sum_
from resurge.operators.coding import coded
from resurge.operators.keyed_state import value_of
from tests.support.engines import Bench, asked, finish
from tests.support.scripted import scripted

START = datetime(2024, 1, 1)
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
FLOATS = [0.0, -0.0, float("nan"), OTHER_NAN, None, 1.5]


def counted(key: tuple[object, ...], rows: pl.DataFrame, state, timers):
    """How many rows a key has had."""
    state["n"] = (state["n"] or 0) + rows.height
    return [{"k": key[0], "n": state["n"]}]


def counted_in_tables(state: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The same on whole tables."""
    new = rows.group_by("k", maintain_order=True).agg(pl.len().cast(pl.Int64).alias("new"))
    merged = new.join(state, on="k", how="left", nulls_equal=True, maintain_order="left")
    merged = merged.select("k", n=pl.col("new") + pl.col("n").fill_null(0))
    return merged, merged


def tables(rows: Stream) -> dict[str, object]:
    """Output and state of the two processes."""
    return {"schema": {"k": rows.shape.schema["k"], "n": pl.Int64}, "state": {"n": value_of(pl.Int64)}}


ADDING: dict[str, Callable[[Stream], Stream]] = {
    "aggregate": lambda rows: rows.aggregate("aggregate", key="k", n=count(), total=sum_("v")),
    "two": lambda rows: rows.aggregate("two", key=("g", "k"), n=count()),
    "window": lambda rows: rows.window("window", "4s", "2s", key="k", n=count(), total=sum_("v")),
    "windows_of_two": lambda rows: rows.window("windows_of_two", "4s", key=("k", "g"), emit="final", n=count()),
    "session": lambda rows: rows.session("session", "3s", key="k", emit="final", n=count()),
    "join": lambda rows: rows.join("join", rows, on="k", within="1s"),
    "per": lambda rows: rows.top_k("per", 2, by="v", per="k", identity="g"),
    "identity": lambda rows: rows.top_k("identity", 2, by="v", per="g", identity="k"),
    "maintain": lambda rows: rows.builder.maintain("maintain", rows, key="k"),
    "maintain_identity": lambda rows: rows.builder.maintain("maintain_identity", rows, key="g", identity="k"),
    "process": lambda rows: rows.process("process", counted, key="k", **tables(rows)),
    "table": lambda rows: rows.process_table("table", counted_in_tables, key="k", **{**tables(rows), "state": {"n": pl.Int64}}),
}


def outcome(epochs: list[list[pl.DataFrame]], folder: Path) -> dict[str, pl.DataFrame]:
    """What each operator shows."""
    bench = Bench(folder)
    job = TopologyBuilder("keys", key_groups=4)
    rows = job.source("rows", scripted(epochs), event_time="at")
    streams = {name: add(rows) for name, add in ADDING.items()}
    finish(bench.engine(asked(job, bench.sink, streams)))
    shown = bench.shown()
    assert shown.keys() == streams.keys()
    return shown


def rows_of(keys: pl.Series, first: int) -> pl.DataFrame:
    """One row per key, half a second apart, in two groups."""
    at = [START + timedelta(seconds=(first + index) / 2) for index in range(len(keys))]
    values = [(first + index) % 5 for index in range(len(keys))]
    return pl.DataFrame({"at": at, "k": keys, "g": [f"g{value % 2}" for value in values], "v": values})


def epochs_of(keys: pl.Series) -> list[list[pl.DataFrame]]:
    """Two epochs of two splits, in which every key comes up again and again."""
    turned = [keys, keys.reverse(), keys, keys.reverse()]
    frames = [rows_of(part.alias("k"), index * len(keys)) for index, part in enumerate(turned)]
    return [frames[:2], frames[2:]]


def bits(frame: pl.DataFrame) -> list[list[object]]:
    """The rows with floating-point numbers as bits, so that 0.0 and -0.0 differ."""
    return [[struct.pack("<d", item) if isinstance(item, float) else item for item in row] for row in frame.rows()]


@pytest.mark.parametrize("kind", [pl.Float64(), pl.Float32()])
def test_zeros_are_one_key_and_so_are_all_that_are_no_number(kind: pl.DataType, tmp_path: Path) -> None:
    """To the bit what comes of rows whose keys had one form from the beginning."""
    raw = pl.Series(FLOATS, dtype=pl.Float64).cast(kind)
    clean = pl.Series([0.0, 0.0, float("nan"), float("nan"), None, 1.5], dtype=pl.Float64).cast(kind)
    found, wanted = (outcome(epochs_of(keys), tmp_path / form) for form, keys in (("raw", raw), ("clean", clean)))
    for name, rows in wanted.items():
        # Only the key takes one form; an identity is a column like others, which stays as it was.
        same = found[name].equals(rows) if "identity" in name else bits(found[name]) == bits(rows)
        assert same, name


KEYS: dict[str, pl.Series] = {
    "Int8": pl.Series([1, -1, None, 7], dtype=pl.Int8),
    "UInt64": pl.Series([1, 2**64 - 1, None, 7], dtype=pl.UInt64),
    "Int64": pl.Series([1, -(2**63), None, 7], dtype=pl.Int64),
    "Decimal": pl.Series([Decimal("1.10"), Decimal("-2.00"), None, Decimal("3.00")], dtype=pl.Decimal(10, 2)),
    "Boolean": pl.Series([True, False, None, True]),
    "String": pl.Series(["a", "", None, "a longer one than fits into a view"]),
    "Binary": pl.Series([b"a", b"", None, b"a longer one than fits into a view"]),
    "Date": pl.Series([date(2024, 1, 1), date(1969, 1, 1), None, date(2025, 1, 1)]),
    "Time": pl.Series([time(1), time(2, 3), None, time(4)]),
    "Datetime": pl.Series([START, datetime(1969, 1, 1), None, START + timedelta(days=1)]),
    "zoned": pl.Series([START, None, START, START]).dt.replace_time_zone("Europe/Berlin"),
    "Duration": pl.Series([timedelta(1), timedelta(0), None, timedelta(2)]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_every_accepted_type_groups_as_its_text_does(kind: str, tmp_path: Path) -> None:
    """The same rows come out as with a string for each key."""
    keys = KEYS[kind]
    texts = pl.Series([None if key is None else f"{key}" for key in keys])
    names = dict(zip(keys, texts, strict=True))
    typed, plain = (outcome(epochs_of(k), tmp_path / form) for form, k in (("typed", keys), ("texts", texts)))
    for name in plain:
        wanted, found = (
            plain[name],
            typed[name].with_columns(pl.Series("k", [names[key] for key in typed[name]["k"]], dtype=pl.String)),
        )
        if name == "identity":
            # Equal values are ranked by identity, whose order is the type's.
            found, wanted = (shown.group_by("epoch", "v").len() for shown in (found, wanted))
        assert sorted(found.rows(), key=repr) == sorted(wanted.rows(), key=repr), name


REFUSED: dict[str, pl.Series] = {
    "Categorical": pl.Series(["a", "b"], dtype=pl.Categorical),
    "Enum": pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])),
    "Struct": pl.Series([{"a": 1}, {"a": 2}]),
    "List": pl.Series([[1], [2]]),
    "Array": pl.Series([[1], [2]], dtype=pl.Array(pl.Int64, 1)),
    "Int128": pl.Series([1, 2], dtype=pl.Int128),
    "Null": pl.Series([None, None]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_types_are_refused_where_the_operator_is_described(kind: str) -> None:
    """The operator, the column and the way out are named."""
    job = TopologyBuilder("keys")
    rows = job.source("rows", scripted(epochs_of(REFUSED[kind])), event_time="at")
    for name, add in ADDING.items():
        with pytest.raises(TopologyError, match=rf"'{name}'.*key column 'k' is .*expected a number, string.* before"):
            add(rows)


def test_codes_of_several_columns_stand_for_whole_keys() -> None:
    """Also where the number of possible combinations does not fit into 64 bits: here it is 2**80."""
    diagonal = pl.DataFrame({name: np.arange(2**16) for name in "abcde"})
    others = [(0, 1, 1, 1, 1), (2, 1, 1, 1, 1), (1, 0, 1, 1, 1), (0, 1, 1, 1, 1)]
    rows = pl.concat([diagonal, pl.DataFrame(others, schema=list("abcde"), orient="row")])
    found = coded(rows, tuple("abcde"))
    assert found.keys[found.codes].equals(rows)
    assert found.keys.height == 2**16 + 3


def test_windows_of_times_far_apart_do_not_run_into_each_other(tmp_path: Path) -> None:
    """A window of a microsecond, thousands of keys, and one row centuries later."""
    times = [*(START + timedelta(microseconds=index % 7) for index in range(5_000)), datetime(2800, 1, 1)]
    rows = pl.DataFrame({"at": times, "k": [index // 2 for index in range(5_001)]}, schema_overrides={"at": pl.Datetime("us")})
    bench = Bench(tmp_path)
    job = TopologyBuilder("apart", key_groups=1)
    windows = job.source("rows", scripted([[rows]]), event_time="at").window("w", timedelta(microseconds=1), key="k", n=count())
    windows.query("out", sink=bench.sink)
    finish(bench.engine(job.build()))
    found = bench.shown()["out"].select("k", "window_start", pl.col("n").cast(pl.Int64)).sort(pl.all())
    wanted = rows.group_by("k", window_start="at").agg(pl.len().cast(pl.Int64).alias("n"))
    assert found.equals(wanted.select("k", "window_start", "n").sort(pl.all()))


LARGE = {
    "aggregate": lambda rows: rows.aggregate("op", key="k", total=sum_("v")),
    "window": lambda rows: rows.window("op", "1h", key="k", total=sum_("v")),
    "session": lambda rows: rows.session("op", "1h", key="k", total=sum_("v")),
    "below": lambda rows: rows.aggregate("above", key="k", v=sum_("v")).aggregate("op", key="k", total=sum_("v")),
}


@pytest.mark.parametrize("cut", ["one split", "two splits", "two epochs"])
@pytest.mark.parametrize("name", LARGE)
def test_an_integer_sum_that_does_not_fit_fails_with_operator_and_column(name: str, cut: str, tmp_path: Path) -> None:
    """Whether it overflows before the shuffle, after it, or when it is merged with state."""
    keys, least = pl.Series(["a", "b"]), -(2**63)
    halves = [rows_of(keys, index).with_columns(v=pl.Series([least, 2**62], dtype=pl.Int64)) for index in range(2)]
    epochs = {"one split": [[pl.concat(halves)]], "two splits": [halves], "two epochs": [halves[:1], halves[1:]]}[cut]
    bench = Bench(tmp_path)
    job = TopologyBuilder("sums", key_groups=1)
    LARGE[name](job.source("rows", scripted(epochs), event_time="at")).query("out", sink=bench.sink)
    with pytest.raises(JobError, match=r"operator '(op|above)'.*sum of column 'v' does not fit; expected at most 64 bits"):
        finish(bench.engine(job.build()))


def test_an_integer_sum_may_reach_the_last_integer(tmp_path: Path) -> None:
    """Sums are exact to both ends, whatever way they come about."""
    bench = Bench(tmp_path)
    rows = rows_of(pl.Series(["a", "a", "b", "b"]), 0).with_columns(
        v=pl.Series([-(2**63), 2**63 - 1, -(2**62), -(2**62)], dtype=pl.Int64)
    )
    job = TopologyBuilder("sums", key_groups=1)
    given_rows = job.source("rows", scripted([[rows]]), event_time="at")
    given_rows.window("op", "1h", key="k", total=sum_("v")).query("out", sink=bench.sink)
    finish(bench.engine(job.build()))
    assert dict(bench.shown()["out"].select("k", "total").iter_rows()) == {"a": -1, "b": -(2**63)}


def renamed(key: tuple[object, ...], rows: pl.DataFrame, state, timers):
    """Rows of another key than the one that they are emitted for."""
    return [{"k": "all", "n": rows.height}]


@pytest.mark.parametrize("how", ["process", "filter"])
def test_rows_that_change_their_key_are_routed_anew(how: str, tmp_path: Path) -> None:
    """What a user's function emits is grouped by what stands in the row."""
    bench = Bench(tmp_path)
    job = TopologyBuilder("routed", key_groups=4)
    rows = job.source("rows", scripted(epochs_of(pl.Series([f"k{index}" for index in range(20)]))), event_time="at")
    if how == "process":
        moved = rows.process("moved", renamed, key="k", schema={"k": pl.String, "n": pl.Int64}, state={"n": value_of(pl.Int64)})
    else:
        counts = rows.aggregate("counts", key="k", n=count())
        moved = counts.filter("moved", lambda table: table.with_columns(k=pl.lit("all")))
    moved.aggregate("total", key="k", rows=count()).query("out", sink=bench.sink)
    finish(bench.engine(job.build()))
    assert bench.shown()["out"].group_by("epoch").len().get_column("len").to_list() == [1, 1]
