"""How many rows an epoch takes of real files: bounded from the first one on, growing, and shared by the sources."""

from pathlib import Path

import polars as pl

from resurge.api.builder import TopologyBuilder
from resurge.connectors.files import files
from resurge.connectors.sinks import MemorySink
from resurge.model.topology import Topology
from resurge.operators.aggregates import count
from resurge.protocols.epoch import FIRST_ROWS
from resurge.telemetry.events import EpochFinished
from tests.support.engines import Bench, finish, started

SCHEMA = {"who": pl.Int64}


def totals(sink: MemorySink, *folders: Path) -> Topology:
    """Rows per key over the files of some folders."""
    job = TopologyBuilder("job", key_groups=2)
    streams = [job.source(folder.name, files(folder / "*.parquet", schema=SCHEMA)) for folder in folders]
    rows = job.union("all", *streams) if len(streams) > 1 else streams[0]
    rows.aggregate("totals", key="who", n=count()).query(sink=sink)
    return job.build()


def write(path: Path, rows: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame({"who": pl.arange(0, rows, eager=True) % 7}, schema=SCHEMA).write_parquet(path)


def rows_read(bench: Bench) -> list[int]:
    return [event.rows_read for event in bench.events if isinstance(event, EpochFinished)]


def test_the_first_epoch_of_every_start_is_bounded_and_the_next_ones_grow(tmp_path: Path) -> None:
    """A backlog is begun with a small epoch, after a restart too; while more waits, the lag is shown."""
    write(tmp_path / "in" / "a.parquet", 30 * FIRST_ROWS)
    bench = Bench(tmp_path / "bench")
    with started(bench.engine(totals(bench.sink, tmp_path / "in"), interval_s=1.0)) as engine:
        engine.step()
        engine.step()
        engine.step()
    assert rows_read(bench)[0] == FIRST_ROWS
    assert rows_read(bench)[2] > FIRST_ROWS
    again = Bench(bench.folder, bench.sink)
    finish(again.engine(totals(bench.sink, tmp_path / "in"), interval_s=1.0))
    assert rows_read(again)[0] == FIRST_ROWS
    assert sum(rows_read(bench)) + sum(rows_read(again)) == 30 * FIRST_ROWS
    lags = [event.lag_rows for event in bench.events if isinstance(event, EpochFinished)]
    assert lags[0] == 29 * FIRST_ROWS


def test_the_users_limit_is_that_of_all_sources_together(tmp_path: Path) -> None:
    """A calm source leaves its share to a busy one."""
    for index in range(3):
        write(tmp_path / "busy" / f"{index}.parquet", 400)
        write(tmp_path / "brisk" / f"{index}.parquet", 400)
    write(tmp_path / "calm" / "a.parquet", 2)
    bench = Bench(tmp_path / "bench")
    job = totals(bench.sink, tmp_path / "busy", tmp_path / "brisk", tmp_path / "calm")
    finish(bench.engine(job, max_rows_per_epoch=120), drain=False)
    read = rows_read(bench)
    assert max(read) <= 120
    assert sum(read) == 2402
    assert read[0] == 40 + 40 + 2
    assert read[2] >= 110
