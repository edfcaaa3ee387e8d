"""Files that keep arriving: each taken exactly once, in order, within the limits, and the same again on replay."""

import os
from pathlib import Path

import fsspec
import polars as pl
import pytest

from resurge.connectors import file_ranges
from resurge.connectors import files as files_module
from resurge.connectors.contracts import ReadLimit
from resurge.connectors.files import files
from resurge.errors import SourceError, TopologyError

SCHEMA = pl.Schema({"id": pl.Int64, "name": pl.String})


def write(path: Path, first: int, rows: int, modified_s: int | None = None) -> Path:
    """A file of rows numbered from `first`, in the format of its suffix."""
    frame = pl.DataFrame({"id": range(first, first + rows), "name": [f"n{i}" for i in range(first, first + rows)]}, schema=SCHEMA)
    path.parent.mkdir(parents=True, exist_ok=True)
    {".parquet": frame.write_parquet, ".csv": frame.write_csv, ".jsonl": frame.write_ndjson}[path.suffix](path)
    if modified_s is not None:
        os.utime(path, (modified_s, modified_s))
    return path


def source_of(folder: Path, suffix: str, **options):
    return files(folder / f"*{suffix}", schema=SCHEMA, **options)


every_format = pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])


@every_format
def test_files_are_taken_in_order_of_arrival_then_name(tmp_path, log, epochs, suffix):
    """Modification time decides, then the name; an epoch without limit takes all."""
    write(tmp_path / f"b{suffix}", 0, 3, modified_s=100)
    write(tmp_path / f"c{suffix}", 3, 2, modified_s=100)
    write(tmp_path / f"a{suffix}", 5, 2, modified_s=200)
    reader = source_of(tmp_path, suffix).reader(log)
    [(good, bad, end)] = list(epochs.run(reader, SCHEMA))
    assert good["id"].to_list() == list(range(7)) and good.schema == SCHEMA
    assert bad.height == 0 and end == {"batch": 1}


@every_format
def test_a_file_that_appears_later_with_an_older_time_and_name_is_taken_once(tmp_path, log, epochs, suffix):
    """What was taken is known by name, not by a position in time."""
    write(tmp_path / f"m{suffix}", 0, 2, modified_s=1000)
    reader = source_of(tmp_path, suffix).reader(log)
    [(_, _, end)] = list(epochs.run(reader, SCHEMA))
    write(tmp_path / f"a{suffix}", 2, 2, modified_s=10)
    write(tmp_path / f"z{suffix}", 4, 2, modified_s=2000)
    [(good, _, end)] = list(epochs.run(reader, SCHEMA, end))
    assert good["id"].to_list() == [2, 3, 4, 5]
    assert list(epochs.run(reader, SCHEMA, end)) == []


@every_format
@pytest.mark.parametrize("limit", [1, 3, 4, 100])
def test_a_row_limit_cuts_files_and_loses_and_repeats_nothing(tmp_path, log, epochs, suffix, limit):
    """Every epoch has at most the limit's rows, whoever sets it, and together they are all rows in order."""
    for index, rows in enumerate((5, 0, 1, 7)):
        write(tmp_path / f"f{index}{suffix}", 10 * index, rows, modified_s=index + 1)
    reader = source_of(tmp_path, suffix, max_rows_per_epoch=limit).reader(log)
    results = list(epochs.run(reader, SCHEMA, limit=ReadLimit(4)))
    assert all(good.height <= min(limit, 4) for good, _, _ in results)
    assert pl.concat([good for good, _, _ in results])["id"].to_list() == [0, 1, 2, 3, 4, 20, *range(30, 37)]
    assert reader.rows_between({"batch": 0}, results[-1][2]) == 13


@every_format
def test_a_new_driver_reads_the_same_epochs_again_and_goes_on(tmp_path, log, epochs, suffix):
    """Committed epochs are as they were, also if the limit is another by then, and no file is taken twice."""
    for index in range(3):
        write(tmp_path / f"f{index}{suffix}", 4 * index, 4, modified_s=index + 1)
    first = source_of(tmp_path, suffix, max_rows_per_epoch=3).reader(log)
    before = list(epochs.run(first, SCHEMA))
    committed = before[1][2]
    second = source_of(tmp_path, suffix, max_rows_per_epoch=100, splits=1).reader(log)
    replayed = [epochs.read(second, SCHEMA, *ends)[0] for ends in (({"batch": 0}, before[0][2]), (before[0][2], committed))]
    assert [good["id"].to_list() for good in replayed] == [good["id"].to_list() for good, _, _ in before[:2]]
    after = [good for good, _, _ in epochs.run(second, SCHEMA, committed)]
    assert pl.concat([*replayed, *after])["id"].to_list() == list(range(12))
    assert len(after) == 1, "what was not committed is planned anew, with the new limit"


def test_an_entry_of_a_superseded_driver_is_left_out(tmp_path, log, epochs):
    """Of two drivers on one log each has its own entries, and the journal says whose count."""
    write(tmp_path / "a.parquet", 0, 2, modified_s=1)
    source = source_of(tmp_path, ".parquet")
    old, new = source.reader(log), source.reader(log)
    old.newest_offset({"batch": 0})
    new.newest_offset({"batch": 0})
    list(epochs.run(old, SCHEMA))
    write(tmp_path / "b.parquet", 2, 2, modified_s=2)
    assert [good["id"].to_list() for good, _, _ in epochs.run(new, SCHEMA)] == [[0, 1, 2, 3]]
    assert len(log.entries) == 2


def test_unfinished_and_hidden_files_are_ignored(tmp_path, log, epochs):
    """Temporary, staged and hidden names, also of folders below the root."""
    write(tmp_path / "in" / "ok.csv", 0, 1)
    for name in ("_a.csv", ".b.csv", "c.csv.tmp", "d.csv.staged", "_staging/e.csv", ".x/f.csv"):
        target = tmp_path / "in" / name
        target.parent.mkdir(exist_ok=True)
        target.write_text("nonsense")
    for location in (tmp_path / "in", tmp_path / "in" / "**" / "*", tmp_path / "in" / "ok.csv"):
        reader = files(location, "csv", SCHEMA).reader(type(log)())
        assert [good["id"].to_list() for good, _, _ in epochs.run(reader, SCHEMA)] == [[0]]


def test_at_most_so_many_files_per_epoch(tmp_path, log, epochs):
    """The other limit counts files."""
    for index in range(5):
        write(tmp_path / f"f{index}.parquet", index, 1, modified_s=index + 1)
    reader = source_of(tmp_path, ".parquet", max_files_per_epoch=2).reader(log)
    assert [good.height for good, _, _ in epochs.run(reader, SCHEMA)] == [2, 2, 1]


def test_small_files_share_splits_and_large_files_are_cut(tmp_path, log, monkeypatch):
    """About as many splits as asked for; each split is logged, so a replay has the same."""
    monkeypatch.setattr(file_ranges, "MINIMUM_CUT_ROWS", 10)
    for index in range(40):
        write(tmp_path / f"f{index:02d}.parquet", index, 1, modified_s=1)
    reader = source_of(tmp_path, ".parquet").reader(log)
    end = reader.latest_offset({"batch": 0}, ReadLimit())
    assert [len(split) for split in reader.partitions({"batch": 0}, end)] == [10, 10, 10, 10]
    write(tmp_path / "large.parquet", 100, 100, modified_s=2)
    after = reader.latest_offset(end, ReadLimit())
    ranges = [(part.row_start, part.row_end) for split in reader.partitions(end, after) for part in split]
    assert ranges == [(0, 25), (25, 50), (50, 75), (75, 100)]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_large_text_file_is_read_in_several_splits(tmp_path, log, epochs, suffix, monkeypatch):
    """The cut lies between records."""
    monkeypatch.setattr(files_module, "LARGE_TEXT_BYTES", 50)
    monkeypatch.setattr(files_module, "MAXIMUM_SPLIT_ROWS", 7)
    write(tmp_path / f"large{suffix}", 0, 40)
    reader = source_of(tmp_path, suffix).reader(log)
    [(good, _, end)] = list(epochs.run(reader, SCHEMA))
    assert good["id"].to_list() == list(range(40))
    assert len(reader.partitions({"batch": 0}, end)) > 3


def test_files_on_an_fsspec_url_are_read_in_row_ranges(log, epochs):
    """Parquet and text from a store that is not a local disk."""
    store = fsspec.filesystem("memory")
    for suffix in ("parquet", "csv"):
        for index in range(2):
            frame = pl.DataFrame({"id": range(10 * index, 10 * index + 10), "name": ["x"] * 10}, schema=SCHEMA)
            with store.open(f"memory://incoming-{suffix}/f{index}.{suffix}", "wb") as file:
                frame.write_parquet(file, row_group_size=4) if suffix == "parquet" else frame.write_csv(file)
        source = files(f"memory://incoming-{suffix}/*.{suffix}", schema=SCHEMA, max_rows_per_epoch=7)
        results = [good["id"].to_list() for good, _, _ in epochs.run(source.reader(type(log)()), SCHEMA)]
        assert results == [list(range(7)), list(range(7, 14)), list(range(14, 20))]


def test_the_lag_and_the_arrival_time_are_known(tmp_path, log):
    """Rows that wait are counted without reading them; rows arrive when their file was written."""
    write(tmp_path / "a.parquet", 0, 10, modified_s=1000)
    write(tmp_path / "b.parquet", 0, 30, modified_s=2000)
    reader = source_of(tmp_path, ".parquet", max_rows_per_epoch=20).reader(log)
    end = reader.latest_offset({"batch": 0}, ReadLimit())
    assert reader.rows_between(end, reader.newest_offset(end)) == 20
    assert reader.rows_between({"batch": 0}, reader.newest_offset(end)) == 40
    assert reader.arrival_s({"batch": 0}, end) == 1500


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_the_lag_of_text_files_is_estimated_from_their_bytes(tmp_path, log, suffix):
    """From the beginning, and once rows were taken: nothing is read to the end for it."""
    for index in range(5):
        write(tmp_path / f"f{index}{suffix}", 10_000, 4000, modified_s=index + 1)
    reader = source_of(tmp_path, suffix).reader(log)
    assert reader.rows_between({"batch": 0}, reader.newest_offset({"batch": 0})) == pytest.approx(20_000, rel=0.02)
    end = reader.latest_offset({"batch": 0}, ReadLimit(5000))
    assert reader.rows_between(end, reader.newest_offset(end)) == pytest.approx(15_000, rel=0.02)


def test_the_lag_does_not_open_the_files_that_wait(tmp_path, log):
    """Thousands may wait: their rows are estimated from the files that were taken."""
    for index in range(3):
        write(tmp_path / f"f{index}.parquet", 0, 1000, modified_s=index + 1)
    reader = source_of(tmp_path, ".parquet").reader(log)
    end = reader.latest_offset({"batch": 0}, ReadLimit(1000))
    for path in (tmp_path / "f1.parquet", tmp_path / "f2.parquet"):
        path.write_bytes(b"?" * path.stat().st_size)
    assert reader.rows_between(end, reader.newest_offset(end)) == 2000


@every_format
def test_a_file_that_shrank_vanished_or_changed_is_named_and_the_job_resumes_when_it_is_back(tmp_path, log, epochs, suffix):
    """An epoch that cannot be read as logged is refused; a copy of the old file is accepted though its time is new."""
    path = write(tmp_path / f"a{suffix}", 0, 5, modified_s=1)
    content = path.read_bytes()
    reader = source_of(tmp_path, suffix).reader(log)
    end = reader.latest_offset({"batch": 0}, ReadLimit())
    path.unlink()
    with pytest.raises(SourceError, match=rf"a{suffix} has vanished since it was logged.*put the old file back"):
        epochs.read(reader, SCHEMA, {"batch": 0}, end)
    path.write_bytes(content[:-3])
    with pytest.raises(SourceError, match=rf"a{suffix} shrank from {len(content)} to {len(content) - 3} bytes"):
        epochs.read(reader, SCHEMA, {"batch": 0}, end)
    with pytest.raises(SourceError, match=rf"a{suffix} shrank"):
        reader.latest_offset(end, ReadLimit())
    path.write_bytes(content[:-3] + b"???")
    with pytest.raises(SourceError, match=rf"a{suffix} has other content"):
        epochs.read(reader, SCHEMA, {"batch": 0}, end)
    path.write_bytes(content)
    assert epochs.read(reader, SCHEMA, {"batch": 0}, end)[0]["id"].to_list() == list(range(5))


def test_a_torn_parquet_file_is_not_logged_and_is_named(tmp_path, log, epochs):
    """It can be replaced, and is then read."""
    path = write(tmp_path / "a.parquet", 0, 5)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    reader = source_of(tmp_path, ".parquet").reader(log)
    with pytest.raises(SourceError, match=r"a.parquet cannot be read as Parquet.*\.tmp"):
        reader.latest_offset({"batch": 0}, ReadLimit())
    assert log.entries == {}
    path.write_bytes(content)
    assert [good.height for good, _, _ in epochs.run(reader, SCHEMA)] == [5]


def test_a_parquet_file_of_another_schema_is_named(tmp_path, log, epochs):
    """A missing column or a type that does not cast stops the epoch; a wider type is cast."""
    pl.DataFrame({"id": [1], "name": ["x"]}, schema={"id": pl.Int32, "name": pl.String}).write_parquet(
        tmp_path / "narrow.parquet"
    )
    reader = source_of(tmp_path, ".parquet").reader(log)
    [(good, _, end)] = list(epochs.run(reader, SCHEMA))
    assert good.schema == SCHEMA
    pl.DataFrame({"id": ["one"], "name": ["x"]}).write_parquet(tmp_path / "text.parquet")
    with pytest.raises(SourceError, match=r"text.parquet rows 0 to 1 cannot be read as id: Int64, name: String"):
        list(epochs.run(reader, SCHEMA, end))


def test_a_damaged_log_entry_is_named(tmp_path, log):
    """The entry's number stands in the error."""
    log.entries[1] = b"{"
    with pytest.raises(SourceError, match="entry 1 of the log of files"):
        source_of(tmp_path, ".csv").reader(log).latest_offset({"batch": 1}, ReadLimit())


def test_what_cannot_be_a_file_source_is_refused_when_it_is_built(tmp_path):
    """Unknown format, missing schema, types that text cannot hold, limits below 1."""
    with pytest.raises(TopologyError, match="cannot be told from its name"):
        files(tmp_path)
    with pytest.raises(TopologyError, match="has no schema of its own"):
        files(tmp_path / "*.csv")
    with pytest.raises(TopologyError, match="no readable Parquet file yet"):
        files(tmp_path / "*.parquet")
    with pytest.raises(TopologyError, match="which csv cannot hold"):
        files(tmp_path / "*.csv", schema={"tags": pl.List(pl.String)})
    with pytest.raises(TopologyError, match=r"max_rows_per_epoch .* is 0; expected"):
        files(tmp_path / "*.csv", schema=SCHEMA, max_rows_per_epoch=0)
    with pytest.raises(TopologyError, match="expected 'fail' or 'route'"):
        files(tmp_path / "*.csv", schema=SCHEMA, bad_rows="ignore")
    with pytest.raises(TopologyError, match="expected 'parquet', 'csv' or 'jsonl'"):
        files(tmp_path / "*.csv", "xml", SCHEMA)


def test_a_folder_that_does_not_exist_is_named(tmp_path, log):
    """A mistyped path is an error, not an empty stream."""
    with pytest.raises(SourceError, match="nowhere does not exist"):
        files(tmp_path / "nowhere" / "*.csv", schema=SCHEMA).reader(log).latest_offset({"batch": 0}, ReadLimit())


def test_the_schema_of_parquet_is_taken_from_the_first_file(tmp_path):
    """Where there is one when the topology is built."""
    write(tmp_path / "a.parquet", 0, 1)
    assert files(tmp_path / "*.parquet").schema() == SCHEMA
