"""The Delta Lake sink on real tables in a folder."""

import itertools
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from resurge.connectors.delta.sink import DeltaSink
from resurge.errors import SinkError
from resurge.testing.sink_conformance import JOB, OTHER_JOB, QUERY, SCHEMA, check_sink, rows_for


def opened(path: Path, job=JOB) -> DeltaSink:
    sink = DeltaSink(path)
    sink.open(QUERY, SCHEMA, job)
    return sink


def staged(sink: DeltaSink, epoch: int, part: str = "p0", rows: int = 3):
    return sink.stage(QUERY, epoch, part, "attempt", rows_for(epoch, part, rows))


def keys(path: Path) -> list[str]:
    return sorted(pl.read_delta(str(path))["key"])


def test_the_sink_keeps_the_laws_of_sinks(tmp_path):
    """Staging, publishing, repeating, abandoning and crashing show each committed row once."""
    numbers = itertools.count()
    check_sink(
        lambda: DeltaSink(tmp_path / str(next(numbers))),
        lambda sink: pl.read_delta(sink.path),
        lambda sink: DeltaSink(sink.path),
    )


def test_of_two_drivers_only_one_commits_a_part(tmp_path):
    """The application transaction makes the slower one look again, and find that nothing is left to do."""
    old, new = opened(tmp_path / "t"), opened(tmp_path / "t")
    old._table.update_incremental()
    note = old._note(QUERY)
    new.publish([staged(new, 1)])
    # A driver that had looked before the other one committed.
    old._note = lambda query, seen=[note]: seen.pop() if seen else DeltaSink._note(old, query)
    old._table.update_incremental = lambda: None
    part = staged(old, 1)
    with pytest.raises(Exception, match="Concurrent transaction"):
        old._commit(QUERY, [part])
    del old._table.update_incremental
    old.publish([part])
    assert len(keys(tmp_path / "t")) == 3


def test_other_writers_and_compaction_do_not_disturb(tmp_path):
    """Between our commits others may append, compact and make checkpoints of the log."""
    path = tmp_path / "t"
    sink = opened(path)
    for epoch in range(1, 6):
        sink.publish([staged(sink, epoch)])
        rows_for(epoch, "other", 1).write_delta(str(path), mode="append")
    DeltaTable(path).optimize.compact()
    DeltaTable(path).create_checkpoint()
    again = opened(path)
    again.publish([staged(again, 5), staged(again, 6)])
    assert len(keys(path)) == 6 * 3 + 5


def test_two_jobs_may_append_to_one_table(tmp_path):
    """Each has an application id of its own."""
    first, second = opened(tmp_path / "t"), opened(tmp_path / "t", OTHER_JOB)
    first.publish([staged(first, 1)])
    second.publish([staged(second, 1)])
    assert len(keys(tmp_path / "t")) == 6


def test_abandoned_files_are_removed_at_the_next_start(tmp_path):
    """Files of epochs that were not committed go; those of committed epochs stay until they are published."""
    path = tmp_path / "t"
    sink = opened(path)
    kept, _ = staged(sink, 1), staged(sink, 2)
    again = opened(path)
    again.clean(QUERY, committed_epoch=1)
    assert sorted(path.glob("*.parquet")) == [path / kept.location]
    again.publish([kept])
    again.clean(QUERY, committed_epoch=1)
    assert len(keys(path)) == 3


def test_a_staged_file_that_is_gone_is_told(tmp_path):
    """Nothing is committed without its rows."""
    sink = opened(tmp_path / "t")
    part = staged(sink, 1)
    sink.discard([part])
    with pytest.raises(SinkError, match="is gone; expected the 3 rows"):
        sink.publish([part])


def test_types_and_tables_that_do_not_fit_are_refused(tmp_path):
    """On open, with the column named."""
    opened(tmp_path / "t")
    with pytest.raises(SinkError, match="for column 'count', but the query's rows are"):
        DeltaSink(tmp_path / "t").open(QUERY, pl.Schema({"key": pl.String, "count": pl.Float64}), JOB)
    with pytest.raises(SinkError, match="'span' is Duration"):
        DeltaSink(tmp_path / "u").open(QUERY, pl.Schema({"span": pl.Duration("us")}), JOB)
    frame = pl.DataFrame({"n": pl.Series([1], dtype=pl.UInt32), "at": [datetime(2024, 1, 2, 3, 4, 5, 6)], "tags": [["a"]]})
    sink = DeltaSink(tmp_path / "v")
    sink.open("q", frame.schema, JOB)
    sink.publish([sink.stage("q", 1, "p", "a", frame)])
    assert pl.read_delta(str(tmp_path / "v")).rows() == frame.rows()


def test_what_is_remembered_does_not_grow(tmp_path):
    """Parts of forgotten epochs leave the note, and are still not shown again."""
    sink = opened(tmp_path / "t")
    for epoch in range(1, 6):
        sink.publish([staged(sink, epoch, f"attempt-{epoch}")])
        sink.forget(QUERY, epoch - 1)
    sink._table.update_incremental()
    assert sink._note(QUERY).published.parts.keys() == {"attempt-4", "attempt-5"}
    sink.publish([staged(sink, 1, "attempt-1")])
    assert len(keys(tmp_path / "t")) == 15


def test_numbers_inside_lists_and_structs_are_widened_too(tmp_path):
    """Delta Lake has no unsigned numbers at any depth, and no arrays of a fixed length."""
    kinds = {"a": pl.List(pl.UInt8), "b": pl.Struct({"n": pl.UInt32, "c": pl.Categorical}), "d": pl.Array(pl.UInt16, 2)}
    frame = pl.DataFrame({"a": [[1, 2], None], "b": [{"n": 3, "c": "x"}, None], "d": [[4, 5], None]}, schema=kinds)
    sink = DeltaSink(tmp_path / "t")
    sink.open("q", frame.schema, JOB)
    sink.publish([sink.stage("q", 1, "p", "a", frame)])
    found = pl.read_delta(str(tmp_path / "t"))
    assert found.to_dicts()[0] == {"a": [1, 2], "b": {"n": 3, "c": "x"}, "d": [4, 5]}
    assert found["a"].to_list() == [[1, 2], None]
