"""Late rows of sessions, joins and rankings can be routed to a side output: nothing is dropped silently."""

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import Stream, TopologyBuilder, WindowStream
from resurge.connectors.sinks import MemorySink
from resurge.operators.aggregates import count
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.testing.inline_runner import InlineRunner
from tests.support.scripted import scripted

START = datetime(2024, 1, 1)


def rows(*seconds: int) -> pl.DataFrame:
    """One row per moment, all of one key."""
    times = [START + timedelta(seconds=moment) for moment in seconds]
    return pl.DataFrame(
        {"at": times, "key": ["a"] * len(seconds), "n": list(seconds)}, schema_overrides={"at": pl.Datetime("us")}
    )


def session(stream: Stream, other: Stream) -> WindowStream:
    """Sessions with a gap of two seconds."""
    return stream.session("op", "2s", key="key", c=count())


def join(stream: Stream, other: Stream) -> WindowStream:
    """Pairs at most a second apart."""
    return stream.join("op", other, on="key", within="1s")


def ranking(stream: Stream, other: Stream) -> WindowStream:
    """The best of each moment."""
    return stream.top_k("op", 1, by="n", per="at", identity="key", expire="at")


@pytest.mark.parametrize("make", [session, join, ranking])
def test_a_row_behind_the_watermark_comes_out_at_the_side(make, tmp_path: Path) -> None:
    """The late row, and no other, is in the side output, as it came in."""
    job = TopologyBuilder("late", key_groups=2)
    stream = job.source("rows", scripted([[rows(0, 1)], [rows(100)], [rows(5, 101)]]), event_time="at")
    other = job.source("other", scripted([[rows(0)], [rows(100)], [rows(101)]]), event_time="at")
    side, out = MemorySink(), MemorySink()
    made = make(stream, other)
    made.query("out", sink=out)
    made.late_rows("late").query("late", sink=side)
    options = RunOptions(str(tmp_path / "job"), interval_s=0, local_root=str(tmp_path))
    run_until_done(Engine(job.build(), InlineRunner(2), options), until_idle=True, drain=True)
    assert side.table().select("at", "key", "n").equals(rows(5))
    assert out.table().height > 0
