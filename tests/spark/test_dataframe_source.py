"""A streaming DataFrame as a source: copied once, logged, read back, also after a restart."""

import os
import pickle
import time

import fsspec
import polars as pl
import pytest
from fsspec.implementations.local import LocalFileSystem

from resurge.connectors.contracts import ReadLimit
from resurge.connectors.dataframes import dataframe
from resurge.connectors.reading import read_split
from resurge.errors import SourceError
from resurge.storage.durable import DurableStore
from tests.support.processes import wait_until
from tests.support.source_logs import MemoryLog

SCHEMA = pl.Schema({"id": pl.Int64, "at": pl.Datetime("us")})


@pytest.fixture(scope="module")
def spark():
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "America/New_York")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def incoming(tmp_path):
    folder = tmp_path / "incoming"
    folder.mkdir()
    return folder


def arrive(folder, name, first, rows):
    lines = "".join(f'{{"id": {i}, "at": "2024-01-01T00:00:{i % 60:02d}Z"}}\n' for i in range(first, first + rows))
    (folder / f".{name}").write_text(lines)
    (folder / f".{name}").rename(folder / name)


def source_over(folder):
    return dataframe(
        lambda spark: spark.readStream.schema("id BIGINT, at TIMESTAMP").option("maxFilesPerTrigger", 1).json(str(folder)),
        SCHEMA,
        trigger_interval="100 milliseconds",
    )


def wait_for(reader, entries):
    deadline = time.monotonic() + 40
    while (logged := reader.newest_offset({"batch": 0})["batch"]) < entries:
        assert time.monotonic() < deadline, f"only {logged} of {entries} batches were logged"
        time.sleep(0.05)


def rows(reader, start, end):
    shipped = pickle.loads(pickle.dumps(reader))
    return pl.concat(
        [pl.DataFrame(schema=SCHEMA), *(read_split(shipped, split, SCHEMA)[0] for split in reader.partitions(start, end))]
    )


def test_each_batch_is_copied_once_and_read_back_also_after_a_restart(spark, incoming, tmp_path):
    """A batch that Spark repeats after a crash is recognised by its number; committed copies and entries are removed."""
    log, folder = MemoryLog(), str(tmp_path / "copies")
    source = source_over(incoming)
    arrive(incoming, "a.json", 0, 3)
    arrive(incoming, "b.json", 3, 2)
    reader = source.reader(log)
    reader.start(lambda: spark, folder)
    wait_for(reader, 2)
    start = reader.initialOffset()
    end = reader.latest_offset(start, ReadLimit(max_rows=1))
    assert end == {"batch": 1}, "an epoch takes at least one of Spark's batches, and no more than the limit allows"
    assert reader.newest_offset(start) == {"batch": 2}
    everything = rows(reader, start, {"batch": 2})
    assert sorted(everything["id"].to_list()) == [0, 1, 2, 3, 4]
    assert everything.schema == SCHEMA and {str(at)[:16] for at in everything["at"]} == {"2024-01-01 00:00"}
    assert reader.rows_between(start, {"batch": 2}) == 5
    assert reader.arrival_s(start, {"batch": 2}) == pytest.approx(time.time(), abs=100)
    # Spark logs a batch a moment after we have.
    done = tmp_path / "copies" / "checkpoint" / "commits" / "1"
    wait_until(done.exists, "Spark's own log of batch 1")
    reader.stop()

    # Spark forgets that batch 1 was done, as after a crash between our log and its own.
    done.unlink()
    (tmp_path / "copies" / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    logged = dict(log.entries)
    again = source.reader(log)
    again.start(lambda: spark, folder)
    arrive(incoming, "c.json", 5, 4)
    wait_for(again, 3)
    again.stop()
    assert {number: log.entries[number] for number in logged} == logged
    assert rows(again, start, {"batch": 2}).equals(everything)
    assert sorted(rows(again, {"batch": 2}, {"batch": 3})["id"].to_list()) == [5, 6, 7, 8]
    again.commit({"batch": 2})
    assert [path.name[:10] for path in (tmp_path / "copies" / "batches").iterdir()] == ["0000000002"]
    assert sorted(log.entries) == [3], "so are their entries"
    assert log.listings == 2, "each driver lists its log once"


def test_a_driver_that_slept_while_it_copied_a_batch_changes_nothing_when_it_wakes(spark, incoming, tmp_path):
    """Its successor has logged the same batch: the files stay as they are, and the copy of the sleeper goes."""
    log, folder = MemoryLog(), str(tmp_path / "copies")
    arrive(incoming, "a.json", 0, 4)
    sleeper, successor = source_over(incoming).reader(log), source_over(incoming).reader(log)
    sleeper._folder = folder
    successor.start(lambda: spark, folder)
    wait_for(successor, 1)
    successor.stop()
    entries, files = dict(log.entries), sorted((tmp_path / "copies" / "batches").rglob("*.parquet"))
    sleeper._copy_batch(spark.read.schema("id BIGINT, at TIMESTAMP").json(str(incoming)), 0)
    assert log.entries == entries
    assert sorted((tmp_path / "copies" / "batches").rglob("*.parquet")) == files
    assert sorted(rows(successor, {"batch": 0}, {"batch": 1})["id"].to_list()) == [0, 1, 2, 3]


def test_what_is_no_stream_or_lacks_a_column_or_has_failed_is_named(spark, incoming, tmp_path):
    """Each error says what was expected."""
    folder = str(tmp_path / "copies")
    with pytest.raises(SourceError, match="expected a streaming one"):
        dataframe(lambda session: session.range(3), SCHEMA).reader(MemoryLog()).start(lambda: spark, folder)
    with pytest.raises(SourceError, match="has the columns id, but the schema also has at"):
        dataframe(lambda session: session.readStream.schema("id BIGINT").json(str(incoming)), SCHEMA).reader(MemoryLog()).start(
            lambda: spark, folder
        )
    reader = source_over(incoming).reader(MemoryLog())
    with pytest.raises(SourceError, match=r"before start\(spark, folder\) was called"):
        reader.latest_offset({"batch": 0}, ReadLimit())
    reader.start(lambda: spark, folder)
    query = reader._query
    query.stop()
    with pytest.raises(SourceError, match="query has stopped"):
        reader.latest_offset({"batch": 0}, ReadLimit())


class ViewedFiles(LocalFileSystem):
    """fsspec's side of a remote store whose other side Spark opens by its own connector."""

    protocol = "viewfs"
    url = "viewfs://store/jobs"
    folder = ""

    @classmethod
    def _strip_protocol(cls, path):
        return LocalFileSystem._strip_protocol(str(path).replace(cls.url, cls.folder))

    def unstrip_protocol(self, name):
        return name.replace(self.folder, self.url)


def test_with_a_remote_checkpoint_url_the_copies_are_there_and_not_on_the_driver(spark, incoming, tmp_path, monkeypatch):
    """Spark and fsspec both reach the store; a new driver with another disk finds what was copied."""
    stored, elsewhere = tmp_path / "stored", tmp_path / "elsewhere"
    for folder in (stored, elsewhere):
        folder.mkdir()
    monkeypatch.chdir(elsewhere)
    fsspec.register_implementation("viewfs", ViewedFiles, clobber=True)
    monkeypatch.setattr(ViewedFiles, "folder", str(stored))
    spark.sparkContext._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.store.link./jobs", f"file://{stored}")
    store = DurableStore(f"{ViewedFiles.url}/mine")
    assert store.location("sources/events") == f"{ViewedFiles.url}/mine/sources/events"
    log = MemoryLog()
    arrive(incoming, "a.json", 0, 3)
    reader = source_over(incoming).reader(log)
    reader.start(lambda: spark, store.location("sources/events"))
    wait_for(reader, 1)
    copies = stored / "mine" / "sources" / "events"
    wait_until((copies / "checkpoint" / "commits" / "0").exists, "Spark's own log of batch 0")
    reader.stop()
    assert list(copies.glob("batches/0000000000-*/*.parquet"))
    assert list(elsewhere.iterdir()) == []
    assert sorted(rows(reader, {"batch": 0}, {"batch": 1})["id"].to_list()) == [0, 1, 2]
    reader.commit({"batch": 1})
    assert list((copies / "batches").iterdir()) == []


def test_a_checkpoint_url_that_spark_cannot_open_is_refused(spark, incoming):
    """Better than copies in some folder of the driver."""
    for url, scheme in (("memory://jobs/mine", "memory"), ("s3://key:secret@bucket/mine", "s3a")):
        with pytest.raises(SourceError, match=rf"Spark cannot open {scheme}://.*Hadoop connector") as caught:
            source_over(incoming).reader(MemoryLog()).start(lambda: spark, url)
        assert "secret" not in str(caught.value)
