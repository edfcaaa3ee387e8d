"""How often operators are called: once for all key groups of a cohort, where what comes of one does not depend on others."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from resurge.api.builder import Stream, TopologyBuilder
from resurge.connectors.sinks import MemorySink
from resurge.errors import JobError, TopologyError
from resurge.model.operator import Determinism
from resurge.operators.aggregates import count
from resurge.operators.base import StatefulOperator
from resurge.operators.keyed_state import value_of
from resurge.operators.stateless import Transform
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.testing.inline_runner import InlineRunner
from tests.support.scripted import scripted

KEY_GROUPS, EPOCHS, SLOTS = 16, 3, 2
START = datetime(2024, 1, 1)
SHOWN = {"key": pl.String, "n": pl.Int64}
TOTAL = {"n": value_of(pl.Int64)}


def given() -> Stream:
    """Rows of forty keys, with event time."""
    table = pl.DataFrame({"key": [f"k{row}" for row in range(40)], "at": [START] * 40, "n": range(40)})
    frames = [[table.with_columns(pl.col("at") + timedelta(seconds=epoch))] for epoch in range(EPOCHS)]
    return TopologyBuilder("calls", key_groups=KEY_GROUPS).source("rows", scripted(frames), event_time="at")


def run(stream: Stream, folder: Path) -> pl.DataFrame:
    """Run a job to its end on two slots; what it showed."""
    sink = MemorySink()
    stream.query("shown", sink=sink)
    options = RunOptions(str(folder / "job"), interval_s=0, local_root=str(folder))
    run_until_done(Engine(stream.builder.build(), InlineRunner(SLOTS), options), until_idle=True)
    return sink.table("shown")


def add_up(key: tuple[Any, ...], rows: pl.DataFrame, state: Any, timers: Any) -> list[dict[str, Any]]:
    """A running total of a key."""
    state["n"] = (state["n"] or 0) + rows["n"].sum()
    return [{"key": key[0], "n": state["n"]}]


def add_up_table(before: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A running total of each key."""
    both = pl.concat([before, rows.select("key", "n")])
    after = both.group_by("key", maintain_order=True).agg(pl.col("n").sum())
    return after, after


def totals(stream: Stream, **declared: Any) -> Stream:
    return stream.process_table("keyed", add_up_table, key="key", schema=SHOWN, state={"n": pl.Int64}, **declared)


KEYED: dict[str, Callable[[Stream], Stream]] = {
    "aggregate": lambda rows: rows.aggregate("keyed", key="key", rows=count()),
    "window": lambda rows: rows.window("keyed", "2s", key="key", rows=count()),
    "session": lambda rows: rows.session("keyed", "1s", key="key", rows=count()),
    "join": lambda rows: rows.join("keyed", rows, on="key", within="1s"),
    "top_k": lambda rows: rows.top_k("keyed", 2, by="n", per="key", identity="n"),
    "maintain": lambda rows: rows.builder.maintain("keyed", rows, key="key"),
    "process": lambda rows: rows.process("keyed", add_up, key="key", schema=SHOWN, state=TOTAL),
    "logged process": lambda rows: rows.process(
        "keyed", add_up, key="key", schema=SHOWN, state=TOTAL, determinism=Determinism.ARBITRARY
    ),
    "process_table per key": lambda rows: totals(rows, per_key=True),
    "logged process_table per key": lambda rows: totals(rows, per_key=True, determinism=Determinism.ARBITRARY),
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators that were called, from now on: keyed ones, and functions of maps."""
    seen: list[str] = []

    def counted(kind: type[Any], method: str) -> None:
        original = getattr(kind, method)

        def called(self: Any, *given: Any) -> Any:
            seen.append(self.name)
            return original(self, *given)

        monkeypatch.setattr(kind, method, called)

    for kind in _kinds(StatefulOperator):
        if "process" in vars(kind) and kind is not StatefulOperator:
            counted(kind, "process")
    counted(Transform, "_run")
    return seen


def _kinds(kind: type[Any]) -> list[type[Any]]:
    return [
        kind,
        *(found for below in kind.__subclasses__() if below.__module__.startswith("resurge") for found in _kinds(below)),
    ]


@pytest.mark.parametrize("name", KEYED)
def test_all_key_groups_of_a_slot_are_one_call(name: str, calls: list[str], tmp_path: Path) -> None:
    """Sixteen key groups on two slots are two calls in an epoch, whether the outcome is logged or not."""
    assert run(KEYED[name](given()), tmp_path).height
    assert calls.count("keyed") == EPOCHS * SLOTS


def test_a_function_on_whole_tables_is_called_for_each_key_group(calls: list[str], tmp_path: Path) -> None:
    """Unless it is declared, it could look at the rows of others."""
    shown = run(totals(given()), tmp_path)
    assert calls.count("keyed") == EPOCHS * KEY_GROUPS
    assert shown.sort("key", "n").equals(run(totals(given(), per_key=True), tmp_path / "again").sort("key", "n"))


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"per_row": True}, SLOTS),
        ({"per_row": True, "deterministic": False}, SLOTS),
        ({}, KEY_GROUPS),
        ({"deterministic": False}, KEY_GROUPS),
    ],
)
def test_a_map_below_a_keyed_operator_is_one_call_if_it_works_row_by_row(
    declared: dict[str, bool], expected: int, calls: list[str], tmp_path: Path
) -> None:
    """A function that is declared to; any other is called for each key group, and the rows are the same."""
    keyed = given().aggregate("keyed", key="key", rows=count())
    mapped = keyed.map("mapped", lambda table: table.with_columns(pl.col("rows") * 2), **declared)
    calls.clear()
    shown = run(mapped, tmp_path)
    assert calls.count("mapped") - built(mapped, calls) == EPOCHS * expected
    assert shown.group_by("rows").len().sort("rows").rows() == [(2, 40), (4, 40), (6, 40)]


def built(stream: Stream, calls: list[str]) -> int:
    """How often a map's function is called only to build the topology."""
    before = calls.count(stream.name)
    stream.builder.build()
    return calls.count(stream.name) - before


def test_a_false_declaration_is_refused_on_the_line_that_makes_it() -> None:
    """As far as made-up rows can tell."""
    keyed = given().aggregate("keyed", key="key", rows=count())
    with pytest.raises(TopologyError, match="map 'm' declares per_row=True, but what it makes of a made-up row depends"):
        keyed.map("m", lambda table: table.with_columns(pl.col("rows") - pl.col("rows").sum()), per_row=True)
    with pytest.raises(TopologyError, match="expected that of a map with a function only"):
        keyed.map("m", pl.col("rows") * 2, per_row=True)

    def shares(before: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        after, made = add_up_table(before, rows)
        return after, made.with_columns(pl.col("n") - pl.col("n").min())

    options: dict[str, Any] = {"key": "key", "state": {"n": pl.Int64}, "per_key": True}
    with pytest.raises(TopologyError, match="depends on the other keys in the table"):
        given().process_table("p", shares, schema=SHOWN, **options)
    with pytest.raises(TopologyError, match="its output has no column 'key' of type String"):
        given().process_table("p", add_up_table, schema={"n": pl.Int64}, **options)


def test_a_false_declaration_is_noticed_in_rows(tmp_path: Path) -> None:
    """A map that leaves rows out, and a table process that makes rows for a key that was not given."""
    keyed = given().aggregate("keyed", key="key", rows=count())
    leaving_out = keyed.map("m", lambda table: table.filter(pl.col("key") != "k3"), per_row=True)
    with pytest.raises(JobError, match=r"map 'm' declares per_row=True, but made [0-9]+ rows of [0-9]+; expected one of each"):
        run(leaving_out, tmp_path)

    def renamed(before: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        after, made = add_up_table(before, rows)
        return after, made.with_columns(pl.col("key") + "!")

    other = given().process_table("p", renamed, key="key", schema=SHOWN, state={"n": pl.Int64}, per_key=True)
    with pytest.raises(JobError, match=r"declares per_key=True, but made a row for key \('k[0-9]+!',\), which has no input"):
        run(other, tmp_path / "other")
