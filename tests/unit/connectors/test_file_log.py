"""A file source's log: it stays small, a start reads little of it, and no file is taken twice."""

from pathlib import Path

import polars as pl

from resurge.connectors.contracts import ReadLimit
from resurge.connectors.file_log import SNAPSHOT_INTERVAL
from resurge.connectors.files import FileReader, files
from resurge.runtime.driver.sources import StoredSourceLog
from resurge.storage.durable import DurableStore
from tests.support.source_logs import MemoryLog

SCHEMA = {"id": pl.Int64}


def reader_over(folder: Path, log: MemoryLog) -> FileReader:
    return files(folder / "*.csv", schema=SCHEMA).reader(log)


def run(folder: Path, log: MemoryLog, start: dict, numbers: range, *, keep: int = 3) -> list[dict]:
    """An epoch per file; the log is trimmed to what is needed for the last epochs. The end of every epoch."""
    reader, ends = reader_over(folder, log), [start]
    for number in numbers:
        (folder / f"{number:05d}.csv").write_text(f"id\n{number}\n")
        ends.append(reader.latest_offset(ends[-1], ReadLimit(10)))
        assert reader.rows_between(ends[-2], ends[-1]) == 1
        if len(ends) > keep:
            reader.commit(ends[-keep])
    return ends


def test_the_log_does_not_grow_with_the_epochs_and_a_start_reads_little_of_it(tmp_path: Path) -> None:
    """A thousand epochs leave at most two snapshots' worth of entries; a new driver reads those since the newest."""
    log = MemoryLog()
    ends = run(tmp_path, log, {"batch": 0}, range(1000))
    assert len(log.entries) <= 2 * SNAPSHOT_INTERVAL + 3
    log.reads = log.listings = 0
    again = reader_over(tmp_path, log)
    assert again.latest_offset(ends[-1], ReadLimit(10)) == ends[-1], "all files are known to be taken"
    assert log.reads <= SNAPSHOT_INTERVAL + 1
    assert log.listings == 1
    assert len(again.partitions(ends[-3], ends[-2])) == 1, "the epochs since the oldest checkpoint can be read again"


def test_a_running_reader_neither_lists_nor_reads_its_log(tmp_path: Path) -> None:
    """It has all in memory, and no more than it needs."""
    log = MemoryLog()
    run(tmp_path, log, {"batch": 0}, range(300))
    assert log.listings == 1
    assert log.reads == 0


def test_files_that_were_removed_long_ago_are_forgotten_and_the_others_are_not(tmp_path: Path) -> None:
    """The log does not grow with files that come and go; one that was taken and is still there is never taken again."""
    log = MemoryLog()
    ends = run(tmp_path, log, {"batch": 0}, range(50))
    for number in range(40):
        (tmp_path / f"{number:05d}.csv").unlink()
    ends = run(tmp_path, log, ends[-1], range(50, 50 + 3 * SNAPSHOT_INTERVAL))
    newest = max(log.entries.values(), key=len)
    assert b"00039.csv" not in newest and b"00040.csv" in newest
    assert reader_over(tmp_path, log).latest_offset(ends[-1], ReadLimit(10)) == ends[-1]


def test_a_file_that_is_gone_for_a_moment_is_not_taken_again(tmp_path: Path) -> None:
    """A snapshot that does not see it keeps it."""
    log, hidden = MemoryLog(), tmp_path / "00000.csv"
    ends = run(tmp_path, log, {"batch": 0}, range(SNAPSHOT_INTERVAL - 1))
    content = hidden.read_bytes()
    hidden.unlink()
    ends = run(tmp_path, log, ends[-1], range(500, 500 + SNAPSHOT_INTERVAL // 2))
    assert any(b"snapshot" in entry for entry in log.entries.values())
    hidden.write_bytes(content)
    assert reader_over(tmp_path, log).latest_offset(ends[-1], ReadLimit(10)) == ends[-1]


def test_the_stored_log_removes_files(tmp_path: Path) -> None:
    """What is trimmed is gone from the store."""
    log = StoredSourceLog(DurableStore(str(tmp_path / "job")), "in")
    (tmp_path / "in").mkdir()
    run(tmp_path / "in", log, {"batch": 0}, range(250))
    assert len(list((tmp_path / "job" / "sources" / "in").iterdir())) <= 2 * SNAPSHOT_INTERVAL
