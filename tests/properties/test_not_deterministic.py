"""An operator that is not deterministic is never computed twice for an epoch once its output was used."""

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from resurge.api.builder import TopologyBuilder
from resurge.connectors.sinks import MemorySink, ParquetSink
from resurge.model.operator import Determinism
from resurge.model.topology import Topology
from resurge.operators.aggregates import count, sum_
from resurge.operators.base import Outcome
from resurge.operators.keyed_state import value_of
from resurge.operators.sorted_runs import TableDelta
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import Member
from resurge.runtime.worker.outcomes import OutcomeId, decided
from resurge.storage.durable import DurableStore
from resurge.testing.inline_runner import InlineRunner
from tests.support.scripted import scripted

EPOCHS = 6
START = datetime(2024, 1, 1)


def sampled(rows: pl.DataFrame) -> pl.DataFrame:
    """A random half of the rows: another half each time."""
    return rows.filter(pl.Series([random.random() < 0.5 for _ in range(rows.height)], dtype=pl.Boolean))


def topology(folder: Path) -> Topology:
    """Raw samples, and a running count of them, which must agree."""
    frames = [[pl.DataFrame({"key": [f"k{(epoch + row) % 5}" for row in range(40)]})] for epoch in range(EPOCHS)]
    job = TopologyBuilder("sampling", key_groups=2)
    sample = job.source("rows", scripted(frames)).filter("sample", sampled, deterministic=False)
    sample.query("sample", sink=ParquetSink(str(folder / "sample")))
    sample.aggregate("counts", key="key", n=count()).query("counts", sink=ParquetSink(str(folder / "counts")))
    return job.build()


def committed(folder: Path) -> pl.DataFrame:
    """All rows with their epochs."""
    pieces = []
    for path in sorted(folder.glob("epoch=*/*.parquet")):
        epoch = int(path.parent.name.removeprefix("epoch="))
        pieces.append(pl.read_parquet(path, hive_partitioning=False).with_columns(pl.lit(epoch).alias("epoch")))
    return pl.concat(pieces)


def run_with_failures(make: Callable[[Path], Topology], folder: Path) -> None:
    """Run a topology to the end through three drivers, each of which loses a node after every epoch."""
    options = RunOptions(str(folder / "job"), interval_s=0, checkpoint_interval=4, local_root=str(folder))
    for until, killed in ((2, "n0"), (4, "n1"), (EPOCHS, "n2")):
        runner = InlineRunner(nodes={"n0": Member(), "n1": Member(), "n2": Member()})
        engine = Engine(make(folder), runner, options)
        engine.start()
        while engine.recovery.head < until:
            engine.step()
            runner.kill(killed)
        engine.finish_recovery()
        engine.close("killed")
    run_until_done(Engine(make(folder), InlineRunner(1), options), until_idle=True)


def newest(folder: Path) -> pl.DataFrame:
    """The last value of each key."""
    return committed(folder).sort("epoch").unique("key", keep="last").drop("epoch").sort("key")


def test_a_random_sample_stays_what_it_was_when_nodes_die_and_the_driver_restarts(tmp_path: Path) -> None:
    """The running counts equal the counts of the sample that was shown, although both were replayed."""
    run_with_failures(topology, tmp_path)
    wanted = committed(tmp_path / "sample").group_by("key").len("n").with_columns(pl.col("n").cast(pl.Int64)).sort("key")
    assert newest(tmp_path / "counts").equals(wanted)


class Lottery:
    """Adds random numbers to a total of its own, and tells of each as soon as it is drawn and, by a timer, once more."""

    def on_rows(self, key, rows, state, timers):
        """Draw one number per row."""
        for at in rows.get_column("at"):
            drawn = random.randrange(1_000_000)
            state["total"] = (state["total"] or 0) + drawn
            timers.set(at)
            yield {"key": key[0], "drawn": drawn, "total": state["total"]}

    def on_timer(self, key, time, state, timers):
        """Draw again when the timer fires."""
        drawn = random.randrange(1_000_000)
        state["total"] += drawn
        yield {"key": key[0], "drawn": drawn, "total": state["total"]}


def lottery(folder: Path) -> Topology:
    """Numbers drawn by a keyed process, shown as they are and summed up."""
    frames = [
        [pl.DataFrame({"key": [f"k{row % 5}" for row in range(20)], "at": [START + timedelta(seconds=epoch)] * 20})]
        for epoch in range(EPOCHS)
    ]
    job = TopologyBuilder("lottery", key_groups=2)
    drawn = job.source("rows", scripted(frames), event_time="at").process(
        "draw",
        Lottery,
        key="key",
        schema={"key": pl.String, "drawn": pl.Int64, "total": pl.Int64},
        state={"total": value_of(pl.Int64)},
        determinism=Determinism.ARBITRARY,
    )
    drawn.query("drawn", sink=ParquetSink(str(folder / "drawn")))
    drawn.aggregate("sums", key="key", total=sum_("drawn")).query("sums", sink=ParquetSink(str(folder / "sums")))
    return job.build()


def test_an_arbitrary_keyed_process_is_not_computed_again(tmp_path: Path) -> None:
    """Its own state, what was shown, and what was made of it downstream agree, although all were replayed."""
    run_with_failures(lottery, tmp_path)
    shown = committed(tmp_path / "drawn")
    sums = shown.group_by("key").agg(pl.col("drawn").sum().alias("total")).sort("key")
    assert newest(tmp_path / "sums").equals(sums)
    last = shown.group_by("key").agg(pl.col("total").max()).sort("key")
    assert last.equals(sums)


def test_branches_of_a_union_do_not_share_logged_outcomes(tmp_path: Path) -> None:
    """Below a union, what an operator makes of one branch never takes the place of what it makes of another."""
    job = TopologyBuilder("two", key_groups=2)
    streams = [job.source(f"{name}s", scripted([[pl.DataFrame({"v": [name] * 3})] * 2] * 2)) for name in ("a", "b", "c")]
    inner = job.union("some", streams[0], streams[1]).map("once", "v", deterministic=False)
    outer = job.union("all", inner, streams[2]).map("twice", "v", deterministic=False)
    sink = MemorySink()
    outer.query("out", sink=sink)
    outer.process(
        "keyed",
        lambda key, rows, state, timers: [{"v": key[0], "n": rows.height}],
        key="v",
        schema={"v": pl.String, "n": pl.Int64},
        state={"n": value_of(pl.Int64)},
        determinism=Determinism.ARBITRARY,
    ).map("after", "v", "n", deterministic=False).query("counts", sink=sink)
    options = RunOptions(str(tmp_path / "job"), interval_s=0, local_root=str(tmp_path))
    run_until_done(Engine(job.build(), InlineRunner(2), options), until_idle=True)
    counts = sink.table("out").group_by("v").len().sort("v").rows()
    assert counts == [("a", 12), ("b", 12), ("c", 12)]
    assert sink.table("counts").group_by("v").agg(pl.col("n").sum()).sort("v").rows() == counts


def test_a_logged_outcome_is_read_back_whole(tmp_path: Path) -> None:
    """Output, changes, and the late rows of each input with their number."""
    rows = pl.DataFrame({"key": ["a", None], "n": [1, 2]})
    late = (rows.head(1), rows.clear())
    made = Outcome(rows, {"state": TableDelta(rows, rows.tail(1), 7)}, 1, late)
    store = DurableStore(str(tmp_path))
    for attempt in (made, Outcome(rows.clear())):
        outcome = decided(store, OutcomeId("op", 1, 3, 0), lambda attempt=attempt: attempt)
        assert outcome.output.equals(rows)
        assert outcome.late_rows == 1
        assert all(found.equals(wanted) for found, wanted in zip(outcome.late, late, strict=True))
        delta = outcome.changes["state"]
        assert (delta.upserts.equals(rows), delta.deletes.equals(rows.tail(1)), delta.low) == (True, True, 7)
    assert decided(store, OutcomeId("op", 0, 3, 0), lambda: Outcome(rows.clear())).output.height == 0
