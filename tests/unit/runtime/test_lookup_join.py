"""A lookup join sees one version of its table for some epochs, and the same one again after a crash."""

from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors.lookup_tables import delta_lookup, parquet_lookup
from resurge.connectors.sinks import MemorySink
from resurge.errors import TopologyError
from resurge.runtime.worker import lookups
from tests.support.engines import Bench, finish, started
from tests.support.scripted import scripted

EPOCHS = [[pl.DataFrame({"shop": ["north", "south", "east"]})] for _ in range(6)]


def write(path: Path, manager: str) -> None:
    pl.DataFrame({"shop": ["north", "south"], "manager": [manager, "Kim"]}).write_parquet(path)


def topology(path: Path, sink: MemorySink, how: str = "left"):
    job = TopologyBuilder("lookups", key_groups=2)
    rows = job.source("rows", scripted(EPOCHS))
    rows.lookup("managers", parquet_lookup(path), on="shop", how=how, refresh_epochs=3).query("all", sink=sink)
    return job.build()


def managers(sink: MemorySink) -> list[tuple[int, str]]:
    shown = sink.table("all", epoch=True).filter(pl.col("shop") == "north")
    return shown.select("epoch", "manager").rows()


def test_replayed_epochs_see_the_version_that_they_saw(tmp_path):
    """The table changes and the driver dies; epochs of the same version see the rows as they were."""
    table, bench = tmp_path / "shops.parquet", Bench(tmp_path)
    write(table, "Ada")
    with started(bench.engine(topology(table, bench.sink), checkpoint_interval=0)) as engine:
        engine.step()
    write(table, "Bob")
    lookups._held.clear()  # another process
    finish(bench.engine(topology(table, bench.sink), checkpoint_interval=0), drain=False)
    assert managers(bench.sink) == [(1, "Ada"), (2, "Ada"), (3, "Bob"), (4, "Bob"), (5, "Bob"), (6, "Bob")]


def test_rows_without_a_match_have_nulls_or_go(tmp_path):
    """As a left or an inner join."""
    write(tmp_path / "shops.parquet", "Ada")
    for how, wanted in (("left", ["Ada", "Kim", None]), ("inner", ["Ada", "Kim"])):
        bench = Bench(tmp_path / how)
        finish(bench.engine(topology(tmp_path / "shops.parquet", bench.sink, how)), drain=False)
        assert bench.sink.table("all")["manager"].to_list()[: len(wanted)] == wanted


def test_a_delta_table_is_read_at_its_newest_version(tmp_path):
    """Its schema is known before anything runs."""
    pl.DataFrame({"shop": ["north"], "manager": ["Ada"]}).write_delta(str(tmp_path / "shops"))
    table = delta_lookup(tmp_path / "shops")
    pl.DataFrame({"shop": ["north"], "manager": ["Bob"]}).write_delta(str(tmp_path / "shops"), mode="overwrite")
    assert table.read().rows() == [("north", "Bob")]


def test_a_lookup_that_does_not_fit_is_refused(tmp_path):
    """On the line that describes it."""
    write(tmp_path / "shops.parquet", "Ada")
    rows = TopologyBuilder("lookups").source("rows", scripted(EPOCHS))
    table = parquet_lookup(tmp_path / "shops.parquet")
    with pytest.raises(TopologyError, match="the table has no column 'store'"):
        rows.lookup("x", table, on="store")
    with pytest.raises(TopologyError, match="both have 'manager'"):
        rows.map("m", pl.all(), pl.lit("x").alias("manager")).lookup("x", table, on="shop")
    with pytest.raises(TopologyError, match="how is 'outer'"):
        rows.lookup("x", table, on="shop", how="outer")
