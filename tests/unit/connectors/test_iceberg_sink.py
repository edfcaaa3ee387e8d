"""The Iceberg sink on real tables in a folder, with a real catalog in SQLite."""

import itertools
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException

from resurge.connectors.iceberg.sink import IcebergSink
from resurge.connectors.published import PublishedParts
from resurge.errors import SinkError
from resurge.testing.sink_conformance import JOB, OTHER_JOB, QUERY, SCHEMA, check_sink, rows_for

TABLE = "shop.totals"


def settings(folder: Path) -> dict[str, str]:
    """A catalog of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def made(folder: Path) -> IcebergSink:
    return IcebergSink(TABLE, "lake", settings(folder))


def opened(folder: Path, job=JOB) -> IcebergSink:
    sink = made(folder)
    sink.open(QUERY, SCHEMA, job)
    return sink


def staged(sink: IcebergSink, epoch: int, part: str = "p0", rows: int = 3):
    return sink.stage(QUERY, epoch, part, "attempt", rows_for(epoch, part, rows))


def loaded(folder: Path):
    """The table as any other client of the catalog sees it."""
    return load_catalog("lake", **settings(folder)).load_table(TABLE)


def rows(folder: Path) -> pl.DataFrame:
    return pl.from_arrow(loaded(folder).scan().to_arrow())


def test_the_sink_keeps_the_laws_of_sinks(tmp_path):
    """Staging, publishing, repeating, abandoning and crashing show each committed row once."""
    numbers = itertools.count()
    check_sink(
        lambda: made(tmp_path / str(next(numbers))),
        lambda sink: pl.from_arrow(load_catalog("lake", **sink.settings).load_table(TABLE).scan().to_arrow()),
        lambda sink: IcebergSink(TABLE, "lake", sink.settings),
    )


def test_a_driver_that_looked_before_another_committed_is_refused(tmp_path):
    """Its commit fails instead of being repeated on top of the other one; then it finds that nothing is left to do."""
    old, new = opened(tmp_path), opened(tmp_path)
    parts = [staged(old, 1), staged(old, 2)]
    old._opened.refresh()
    new.publish(parts)
    with pytest.raises(CommitFailedException):
        old._commit(QUERY, parts)
    old.publish(parts)
    assert rows(tmp_path).height == 6
    assert "commit.retry.num-retries" not in loaded(tmp_path).properties


def test_rows_and_note_are_one_commit(tmp_path):
    """The commit that adds the files also says what was published."""
    sink = opened(tmp_path)
    sink.publish([staged(sink, 1), staged(sink, 1, "p1")])
    table = loaded(tmp_path)
    assert len(table.metadata.snapshots) == 1
    assert table.current_snapshot().summary["resurge.epoch"] == "1"
    assert PublishedParts.decode(table.properties[f"resurge-{JOB.id}.{QUERY}"]).parts == {"p0": 1, "p1": 1}


def test_other_writers_and_expired_snapshots_do_not_disturb(tmp_path):
    """Between our commits others may append and remove old snapshots."""
    sink = opened(tmp_path)
    for epoch in range(1, 4):
        sink.publish([staged(sink, epoch)])
        loaded(tmp_path).append(rows_for(epoch, "other", 1).to_arrow())
    table = loaded(tmp_path)
    table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in table.metadata.snapshots[:-1]]).commit()
    again = opened(tmp_path)
    again.publish([staged(again, 3), staged(again, 4)])
    assert rows(tmp_path).height == 4 * 3 + 3


def test_two_jobs_may_append_to_one_table(tmp_path):
    """Each has a note of its own."""
    first, second = opened(tmp_path), opened(tmp_path, OTHER_JOB)
    first.publish([staged(first, 1)])
    second.publish([staged(second, 1)])
    assert rows(tmp_path).height == 6


def test_abandoned_files_are_removed_at_the_next_start(tmp_path):
    """Files of epochs that were not committed go; those of committed epochs stay until they are published."""
    sink = opened(tmp_path)
    kept, _ = staged(sink, 1), staged(sink, 2)
    again = opened(tmp_path)
    again.clean(QUERY, committed_epoch=1)
    assert [path.name for path in (tmp_path / "warehouse").rglob("*.parquet")] == [kept.location]
    again.publish([kept])
    assert rows(tmp_path).height == 3


def test_a_staged_file_that_is_gone_is_told(tmp_path):
    """Nothing is committed without its rows."""
    sink = opened(tmp_path)
    part = staged(sink, 1)
    sink.discard([part])
    with pytest.raises(SinkError, match="is gone; expected the 3 rows"):
        sink.publish([part])
    assert rows(tmp_path).height == 0


def test_a_catalog_that_cannot_be_reached_is_told(tmp_path):
    """On open, with the table and the catalog named."""
    sink = IcebergSink(TABLE, "lake", {"type": "sql", "uri": f"sqlite:///{tmp_path}/none/catalog.db", "warehouse": str(tmp_path)})
    with pytest.raises(SinkError, match=r"'shop\.totals' of catalog 'lake' could not be opened"):
        sink.open(QUERY, SCHEMA, JOB)


def test_types_and_tables_that_do_not_fit_are_refused(tmp_path):
    """On open, with the column named."""
    opened(tmp_path)
    with pytest.raises(SinkError, match="has long for column 'count', but the query's rows are double"):
        made(tmp_path).open(QUERY, pl.Schema({"key": pl.String, "count": pl.Float64}), JOB)
    with pytest.raises(SinkError, match="has no column 'more'"):
        made(tmp_path).open(QUERY, pl.Schema({"key": pl.String, "more": pl.Float64}), JOB)
    with pytest.raises(SinkError, match="'span' is Duration"):
        made(tmp_path / "other").open(QUERY, pl.Schema({"span": pl.Duration("us")}), JOB)


def test_types_that_iceberg_does_not_have_are_widened(tmp_path):
    """Unsigned and short numbers become longer ones, arrays become lists; every value is what it was."""
    frame = pl.DataFrame(
        {
            "n": pl.Series([1, None], dtype=pl.UInt32),
            "small": pl.Series([-3, 4], dtype=pl.Int8),
            "at": [datetime(2024, 1, 2, 3, 4, 5, 6), None],
            "day": [date(2024, 1, 2), None],
            "price": pl.Series([Decimal("1.25"), None], dtype=pl.Decimal(12, 2)),
            "tags": pl.Series([[1], []], dtype=pl.List(pl.UInt8)),
            "pair": pl.Series([{"a": 1, "b": "x"}, None], dtype=pl.Struct({"a": pl.UInt16, "b": pl.Categorical})),
        }
    )
    sink = made(tmp_path)
    sink.open("q", frame.schema, JOB)
    sink.publish([sink.stage("q", 1, "p", "a", frame)])
    assert rows(tmp_path).rows() == frame.rows()


def test_what_is_remembered_does_not_grow(tmp_path):
    """Parts of forgotten epochs leave the note, and are still not shown again."""
    sink = opened(tmp_path)
    for epoch in range(1, 6):
        sink.publish([staged(sink, epoch, f"attempt-{epoch}")])
        sink.forget(QUERY, epoch - 1)
    note = PublishedParts.decode(loaded(tmp_path).properties[f"resurge-{JOB.id}.{QUERY}"])
    assert note.parts.keys() == {"attempt-4", "attempt-5"}
    sink.publish([staged(sink, 1, "attempt-1")])
    assert rows(tmp_path).height == 15
