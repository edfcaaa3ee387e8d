"""An operator that is not deterministic is never computed twice for an epoch once its output was used."""

import random
from pathlib import Path

import polars as pl

from resurge.builder import TopologyBuilder
from resurge.connectors.sinks import ParquetSink
from resurge.operators.aggregates import count
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import InlineRunner, Member
from tests.support.scripted import scripted

EPOCHS = 6


def sampled(rows: pl.DataFrame) -> pl.DataFrame:
    """A random half of the rows: another half each time."""
    return rows.filter(pl.Series([random.random() < 0.5 for _ in range(rows.height)], dtype=pl.Boolean))


def topology(folder: Path):
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


def test_a_random_sample_stays_what_it_was_when_nodes_die_and_the_driver_restarts(tmp_path: Path) -> None:
    """The running counts equal the counts of the sample that was shown, although both were replayed."""
    options = RunOptions(str(tmp_path / "job"), interval_s=0, checkpoint_interval=4, local_root=str(tmp_path))
    for until, killed in ((2, "n0"), (4, "n1"), (EPOCHS, "n2")):
        runner = InlineRunner(nodes={"n0": Member(), "n1": Member(), "n2": Member()})
        engine = Engine(topology(tmp_path), runner, options)
        engine.start()
        while engine.facts.head < until:
            engine.step()
            runner.kill(killed)
        engine.finish_recovery()
        engine.close("killed")
    final = Engine(topology(tmp_path), InlineRunner(1), options)
    run_until_done(final, until_idle=True)
    sample, counts = committed(tmp_path / "sample"), committed(tmp_path / "counts")
    last = counts.sort("epoch").unique("key", keep="last").select("key", "n").sort("key")
    wanted = sample.group_by("key").len("n").with_columns(pl.col("n").cast(pl.Int64)).sort("key")
    assert last.equals(wanted)
