"""A Delta table as a source: what is there first, then what is appended, each row once."""

import pickle
from datetime import date
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from resurge.api.builder import TopologyBuilder
from resurge.connectors.contracts import ReadLimit
from resurge.connectors.delta.source import delta
from resurge.errors import SourceError, TopologyError
from resurge.operators.aggregates import count
from tests.support.engines import Bench, finish, started
from tests.unit.connectors.conftest import MemoryLog

NO_LIMIT = ReadLimit()


def append(path: Path, *numbers: int, **how) -> None:
    pl.DataFrame({"n": list(numbers), "who": [f"user{n % 3}" for n in numbers]}).write_delta(str(path), mode="append", **how)


def numbers(reader, start, end) -> list[int]:
    splits = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    there = pickle.loads(pickle.dumps(reader))
    return sorted(n for split in splits for n in there.read_frames(split)[0]["n"])


def test_rows_that_are_there_and_rows_that_are_appended_are_read_once(tmp_path):
    """Epoch by epoch, and again as they were; also by a reader of a later driver."""
    table, log = tmp_path / "t", MemoryLog()
    append(table, 1, 2)
    append(table, 3)
    source = delta(table)
    reader = source.reader(log)
    offsets = [reader.initialOffset()]
    wanted = [[1, 2, 3], [4], [5, 6, 7]]
    for added in ((), (4,), (5, 6), (7,)):
        if added:
            append(table, *added)
        if added != (5, 6):
            offsets.append(reader.latest_offset(offsets[-1], NO_LIMIT))
    assert reader.latest_offset(offsets[-1], NO_LIMIT) == offsets[-1]
    later = source.reader(log)
    for known in (reader, later):
        assert [numbers(known, start, end) for start, end in pairwise(offsets)] == wanted
    assert later.rows_between(offsets[0], later.newest_offset(offsets[0])) == 7


def test_epochs_end_at_whole_files(tmp_path):
    """As many as fit, and at least one."""
    table = tmp_path / "t"
    for first in range(0, 20, 5):
        append(table, *range(first, first + 5))
    reader = delta(table, max_rows_per_epoch=12).reader(MemoryLog())
    offsets, found = [reader.initialOffset()], []
    while (end := reader.latest_offset(offsets[-1], NO_LIMIT)) != offsets[-1]:
        found.append(numbers(reader, offsets[-1], end))
        offsets.append(end)
    assert [len(rows) for rows in found] == [10, 10]
    assert sorted(n for rows in found for n in rows) == list(range(20))
    assert len(numbers(reader, offsets[0], reader.latest_offset(offsets[0], ReadLimit(1)))) == 5


def test_columns_that_the_table_is_partitioned_by_are_read(tmp_path):
    """Text with spaces, dates, booleans and nulls, in the first version and in later ones."""
    rows = {"n": [1, 2], "where": ["x y/z", None], "day": [date(2024, 2, 29), None], "flag": [True, None]}
    frame = pl.DataFrame(rows, schema_overrides={"where": pl.String})
    for _ in range(2):
        frame.write_delta(str(tmp_path / "t"), mode="append", delta_write_options={"partition_by": ["where", "day", "flag"]})
        reader = delta(tmp_path / "t").reader(MemoryLog())
    start = reader.initialOffset()
    frame.write_delta(str(tmp_path / "t"), mode="append")
    splits = reader.partitions(start, reader.latest_offset(start, NO_LIMIT))
    found = pl.concat([reader.read_frames(split)[0] for split in splits])
    assert found.select(frame.columns).sort("n").rows() == sorted(frame.rows() * 3)


def test_compaction_is_no_news_and_changes_are_refused(tmp_path):
    """Rows that were moved to another file are not read again; a version that deletes rows stops the job."""
    table = tmp_path / "t"
    append(table, 1)
    reader = delta(table).reader(MemoryLog())
    first = reader.latest_offset(reader.initialOffset(), NO_LIMIT)
    append(table, 2)
    append(table, 3)
    DeltaTable(table).optimize.compact()
    second = reader.latest_offset(first, NO_LIMIT)
    assert numbers(reader, first, second) == [2, 3]
    DeltaTable(table).delete("n = 2")
    with pytest.raises(SourceError, match=r"version 4 of .* deletes or changes rows"):
        reader.latest_offset(second, NO_LIMIT)


def test_what_is_gone_is_told(tmp_path):
    """A file, a commit of the log, the table itself, and a table that was made again."""
    table = tmp_path / "t"
    append(table, 1)
    reader = delta(table).reader(MemoryLog())
    start = reader.initialOffset()
    append(table, 2)
    append(table, 3)
    end = reader.latest_offset(start, NO_LIMIT)
    splits = reader.partitions(start, end)
    Path(splits[1].path).unlink()
    with pytest.raises(SourceError, match="is gone before it was read: VACUUM"):
        reader.read_frames(splits[1])
    DeltaTable(table).create_checkpoint()
    (table / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(SourceError, match="the table's log was cleaned"):
        reader.__class__(reader.source, reader._log).partitions(start, end)
    with pytest.raises(TopologyError, match="is no Delta table"):
        delta(tmp_path / "none")
    other = tmp_path / "other"
    append(other, 1)
    with pytest.raises(SourceError, match="deleted and made again"):
        delta(other).reader(MemoryLog()).latest_offset(end, NO_LIMIT)


def test_a_driver_that_dies_loses_and_repeats_nothing(tmp_path):
    """The table grows while no driver runs; totals are those of all rows."""
    table, bench = tmp_path / "table", Bench(tmp_path)
    append(table, *range(30))

    def job():
        builder = TopologyBuilder("changes", key_groups=2)
        rows = builder.source("rows", delta(table, max_rows_per_epoch=10))
        rows.aggregate("totals", key="who", c=count()).query("totals", sink=bench.sink)
        return builder.build()

    with started(bench.engine(job())) as engine:
        engine.step()
    append(table, *range(30, 45))
    append(table, *range(45, 60))
    finish(bench.engine(job()), drain=False)
    last = bench.sink.table("totals", epoch=True).sort("epoch").unique("who", keep="last")
    assert sorted(last.select("who", "c").rows()) == [("user0", 20), ("user1", 20), ("user2", 20)]
