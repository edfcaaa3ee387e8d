"""Rows that come late, have no time, or come after the end: in a window or in the side output, never in both or neither."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import Stream, TopologyBuilder
from resurge.model.topology import Topology
from resurge.operators.aggregates import count, sum_
from resurge.operators.keyed_state import value_of
from tests.support.engines import Bench, asked, finish
from tests.support.scripted import scripted

START = datetime(2024, 1, 1)
SCHEMA = {"at": pl.Datetime("us"), "who": pl.String, "amount": pl.Int64}
Seconds = list[int]


def frame(seconds: Seconds) -> pl.DataFrame:
    return pl.DataFrame([(START + timedelta(seconds=s), "a", s) for s in seconds], schema=SCHEMA, orient="row")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def job(bench: Bench, epochs: list[Seconds], describe: Callable[[TopologyBuilder, Stream], dict[str, Stream]]) -> Topology:
    made = TopologyBuilder("late", key_groups=2)
    source = made.source("rows", scripted([[frame(seconds)] for seconds in epochs]), event_time="at")
    return asked(made, bench.sink, describe(made, source))


def counts(bench: Bench, query: str = "windows") -> list[tuple[int, int]]:
    """Second at which each shown window starts, and its count."""
    table = bench.sink.table(query)
    return sorted(((start - START).seconds, n) for start, n in table.select("window_start", "n").iter_rows())


def late(bench: Bench) -> list[int]:
    return sorted(bench.sink.table("late")["amount"].to_list())


@pytest.mark.parametrize(("newest", "is_late"), [(19, False), (20, True), (25, True), (35, True)])
def test_the_allowed_lateness_counts_once(newest: int, is_late: bool, bench: Bench) -> None:
    """A window of 10 s with 10 s of lateness is closed when the watermark has reached 20 s, not later."""

    def describe(made: TopologyBuilder, rows: Stream) -> dict[str, Stream]:
        window = rows.window("windows", "10s", key="who", lateness="10s", emit="final", n=count())
        return {"windows": window, "late": window.late_rows("late")}

    finish(bench.engine(job(bench, [[1], [newest], [2]], describe)))
    assert late(bench) == ([2] if is_late else [])
    assert counts(bench)[0] == (0, 1 if is_late else 2)
    told = [event.late_rows for event in bench.events if hasattr(event, "late_rows") and event.late_rows]
    assert told == ([{"windows": 1}] if is_late else [])


@pytest.mark.parametrize("all_missing", [True, False])
def test_a_row_whose_time_is_missing_after_a_map_is_late(all_missing: bool, bench: Bench) -> None:
    """It belongs to no window, so it is counted and routed rather than dropped."""
    timely = pl.lit(None, pl.Datetime("us")) if all_missing else pl.when(pl.col("amount") != 2).then(pl.col("at"))

    def describe(made: TopologyBuilder, rows: Stream) -> dict[str, Stream]:
        window = rows.map("parsed", timely.alias("time"), "who", "amount", event_time="time").window(
            "windows", "10s", key="who", emit="final", n=count()
        )
        return {"windows": window, "late": window.late_rows("late")}

    finish(bench.engine(job(bench, [[1, 2], [3]], describe)))
    assert counts(bench) == ([] if all_missing else [(0, 2)])
    assert late(bench) == ([1, 2, 3] if all_missing else [2])


@pytest.mark.parametrize("chained", [True, False])
def test_what_comes_after_a_job_was_drained_is_late(chained: bool, bench: Bench) -> None:
    """Draining closes every window for ever: rows that come later are told of, in this run and in the next."""

    def describe(made: TopologyBuilder, rows: Stream) -> dict[str, Stream]:
        window = rows.window("windows", "10s", key="who", emit="final", n=count())
        updates = rows.window("updates", "5s", key="who", n=count())
        return {"windows": window, "late": window.late_rows("late"), "updates": updates}

    finish(bench.engine(job(bench, [[1, 2]], describe), chained=chained))
    finish(bench.engine(job(bench, [[1, 2], [3, 400], [5]], describe), chained=chained))
    assert counts(bench) == [(0, 2)]
    assert counts(bench, "updates") == [(0, 2)]
    assert late(bench) == [3, 5, 400]


def test_a_timer_sees_a_watermark_also_after_the_job_was_drained(bench: Bench) -> None:
    """The end of time is a time that Python can show."""

    def describe(made: TopologyBuilder, rows: Stream) -> dict[str, Stream]:
        def handler(key, given, state, timers):
            state["n"] = given.height
            return [{"who": key[0], "watermark": timers.watermark}]

        output = {"who": pl.String, "watermark": pl.Datetime("us")}
        return {"seen": rows.process("seen", handler, key="who", schema=output, state={"n": value_of(pl.Int64)})}

    finish(bench.engine(job(bench, [[1]], describe)))
    finish(bench.engine(job(bench, [[1], [2]], describe)))
    assert bench.sink.table("seen")["watermark"].to_list() == [None, datetime.max]


def test_windows_that_share_some_of_their_inputs_take_what_they_need_of_each(bench: Bench) -> None:
    """Panes are combined once for all windows over a stream; a union of such streams has different parts from each."""

    def describe(made: TopologyBuilder, rows: Stream) -> dict[str, Stream]:
        odd = rows.filter("odd", pl.col("amount") % 2 == 1)
        again = rows.process(
            "again",
            lambda key, given, state, timers: given,
            key="who",
            schema=SCHEMA,
            state={"n": value_of(pl.Int64)},
            event_time="at",
        )
        both, mixed = made.union("both", odd, rows), made.union("mixed", rows, again)
        return {
            "windows": both.window("windows", "10s", key="who", emit="final", n=count()),
            "odds": odd.window("odds", "4s", key="who", emit="final", n=count(), total=sum_("amount")),
            "mixes": mixed.window("mixes", "10s", key="who", emit="final", n=count()),
            "totals": mixed.window("totals", "5s", key="who", emit="final", n=sum_("amount")),
        }

    finish(bench.engine(job(bench, [[1, 2], [3, 4]], describe)))
    assert counts(bench) == [(0, 6)]
    assert counts(bench, "odds") == [(0, 2)]
    assert counts(bench, "mixes") == [(0, 8)]
    assert counts(bench, "totals") == [(0, 20)]
