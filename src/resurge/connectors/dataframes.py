"""Any streaming DataFrame as a source: each of Spark's batches is copied durably, logged, and read back like files."""

import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from resurge.connectors.contracts import Offset, ReadLimit, Source, SourceLog, SourceReader
from resurge.connectors.file_log import Batch, encode_batch, read_batch
from resurge.connectors.file_ranges import Split, check_unchanged, plan_splits, range_of
from resurge.connectors.frames import bad_frame
from resurge.connectors.locations import filesystem, is_local, list_files, plain_location
from resurge.connectors.parquet_files import cut_parquet, parquet_rows, read_parquet
from resurge.connectors.spark_types import polars_schema
from resurge.errors import SourceError, TopologyError

_HADOOP_SCHEMES = {"s3": "s3a", "az": "abfs"}

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class DataFrameSource(Source):
    """A streaming DataFrame that `build` makes of a session; `dataframe` makes one."""

    build: "Callable[[SparkSession], DataFrame]" = field(compare=False)
    columns: pl.Schema
    trigger_interval: str = "1 second"
    splits: int = 4

    def schema(self) -> pl.Schema:
        return self.columns

    def reader(self, log: SourceLog) -> "DataFrameReader":
        return DataFrameReader(self, log)


def dataframe(
    build: "Callable[[SparkSession], DataFrame]", schema: Any, *, trigger_interval: str = "1 second", splits: int = 4
) -> DataFrameSource:
    """Take the rows of a streaming DataFrame, such as `lambda spark: spark.readStream.format("kafka")...load()`.

    `schema` is a Polars schema, a StructType or a DDL string. An epoch takes whole batches of Spark's: bound their size with
    the options of the DataFrame's own source. Instants arrive as naive UTC.
    """
    if not callable(build):
        raise TopologyError(f"a DataFrame source is built by {build!r}; expected a function of a SparkSession")
    if not isinstance(splits, int) or splits < 1:
        raise TopologyError(f"splits is {splits!r}; expected a whole number of at least 1")
    columns = pl.Schema(schema) if isinstance(schema, dict) else polars_schema(schema)
    return DataFrameSource(build, columns, trigger_interval, splits)


class DataFrameReader(SourceReader):
    """Offset {"batch": n} is the end of log entry n, which names the files of Spark's batch n - 1.

    `start` must be called on the driver before the first offset is asked for, and `stop` at the end. An entry is written only
    after its files, under the number of Spark's batch: a batch that Spark repeats after a crash is copied again or, if it was
    logged, skipped.
    """

    def __init__(self, source: DataFrameSource, log: SourceLog) -> None:
        self.source = source
        self.name = "dataframe"
        self._log: SourceLog | None = log
        self._query: Any = None
        self._folder: str | None = None
        self._batches: dict[int, Batch] = {}
        self._logged: set[int] = set()
        self._committed = 0

    def __getstate__(self) -> dict[str, Any]:
        """Executors only read splits: the log, the query and the function that built it stay on the driver."""
        source = DataFrameSource(_not_on_executors, self.source.columns, self.source.trigger_interval, self.source.splits)
        return {**self.__dict__, "source": source, "_log": None, "_query": None, "_batches": {}, "_logged": set()}

    def start(self, session: "Callable[[], SparkSession]", folder: str) -> None:
        """Start Spark's own query; copies go to `<folder>/batches`, Spark's progress to `<folder>/checkpoint`."""
        spark = session()
        self._folder = plain_location(folder)
        refuse_unknown_to_spark(spark, self._folder)
        self._logged = set(self._driver_log().numbers())
        stream = self.source.build(spark)
        if not getattr(stream, "isStreaming", False):
            raise SourceError("a DataFrame source was built of a batch DataFrame; expected a streaming one: use spark.readStream")
        missing = [name for name in self.source.columns if name not in stream.columns]
        if missing:
            raise SourceError(
                f"the streaming DataFrame has the columns {', '.join(stream.columns)}, but the schema also has "
                f"{', '.join(missing)}: select them in the function that builds it"
            )
        self._query = (
            stream.select(*[f"`{name}`" for name in self.source.columns])
            .writeStream.foreachBatch(self._copy_batch)
            .option("checkpointLocation", spark_location(f"{self._folder}/checkpoint"))
            .trigger(processingTime=self.source.trigger_interval)
            .start()
        )

    def stop(self) -> None:
        """Stop Spark's query; what it has copied stays."""
        if self._query is not None:
            self._query.stop()
            self._query = None

    def initialOffset(self) -> Offset:
        return {"batch": 0}

    def latest_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        """As many whole batches as the limit allows, and at least one if there is one."""
        self._check_query()
        first, rows = int(start["batch"]), 0
        last = first
        for number in self._logged_after(first):
            rows += self._rows(number)
            if last > first and limit.max_rows is not None and rows > limit.max_rows:
                break
            last = number
        return {"batch": last}

    def newest_offset(self, start: Offset) -> Offset:
        return {"batch": max(self._logged_after(int(start["batch"])), default=int(start["batch"]))}

    def partitions(self, start: Offset, end: Offset) -> Sequence[Split]:
        numbers = range(int(start["batch"]) + 1, int(end["batch"]) + 1)
        return [split for number in numbers for split in self._batch(number).splits if split]

    def read_frames(self, partition: Split) -> tuple[pl.DataFrame, pl.DataFrame]:
        frames = []
        for part in partition:
            check_unchanged(part)
            frames.append(read_parquet(part, self.source.columns))
        return pl.concat(frames) if frames else pl.DataFrame(schema=self.source.columns), bad_frame([])

    def commit(self, end: Offset) -> None:
        """Remove the copies that are never asked for again, and their entries.

        The newest entry stays: Spark may repeat its batch after a crash, but none before it.
        """
        if self._folder is None:
            return
        self._committed = max(self._committed, int(end["batch"]))
        for name in _folder_names(f"{self._folder}/batches"):
            if int(name.partition("-")[0]) < self._committed:
                _remove_folder(f"{self._folder}/batches/{name}")
        self._batches = {number: batch for number, batch in self._batches.items() if number > self._committed}
        newest = max(self._logged, default=0)
        for number in [known for known in self._logged if known <= self._committed and known < newest]:
            self._driver_log().remove(number)
            self._logged.discard(number)

    def rows_between(self, start: Offset, end: Offset) -> int:
        return sum(self._rows(number) for number in range(int(start["batch"]) + 1, int(end["batch"]) + 1))

    def arrival_s(self, start: Offset, end: Offset) -> float | None:
        """A batch's rows arrive when it is copied."""
        ranges = [part for number in range(int(start["batch"]) + 1, int(end["batch"]) + 1) for part in self._batch(number).ranges]
        total = sum(part.weight for part in ranges)
        return sum(part.modified_s * part.weight for part in ranges) / total if total else None

    def _copy_batch(self, batch: "DataFrame", batch_id: int) -> None:
        """On Spark's thread: copy, then log. The batch id is the key: what is logged is not copied again."""
        log, number = self._driver_log(), batch_id + 1
        if number in self._logged:
            return
        # A folder that no other attempt uses: a driver that was superseded must not overwrite what its successor has logged.
        folder = f"{self._folder}/batches/{batch_id:010d}-{secrets.token_hex(4)}"
        # Spark would write instants as 96-bit nanoseconds. The Spark session is the query's own, so the setting stays in it.
        batch.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        batch.write.mode("overwrite").parquet(spark_location(folder))
        ranges = [cut_parquet(range_of(file), parquet_rows(file.path), None) for file in sorted(list_files(folder), key=_by_path)]
        filled = [part for part in ranges if part.rows]
        if not log.create(number, encode_batch(Batch(plan_splits(filled, self.source.splits, can_cut=True)))):
            _remove_folder(folder)
        self._logged.add(number)

    def _check_query(self) -> None:
        if self._query is None:
            raise SourceError("a DataFrame source was asked for its newest input before start(spark, folder) was called")
        failure = self._query.exception()
        if failure is not None or not self._query.isActive:
            raise SourceError(
                f"the streaming DataFrame's query has stopped: {failure}; fix its cause and run the same command again"
            )

    def _logged_after(self, first: int) -> list[int]:
        """The logged batches that follow one another after `first`."""
        last = first
        while last + 1 in self._logged:
            last += 1
        return list(range(first + 1, last + 1))

    def _rows(self, number: int) -> int:
        return sum(part.rows or 0 for part in self._batch(number).ranges)

    def _batch(self, number: int) -> Batch:
        if number not in self._batches:
            self._batches[number] = read_batch(self._driver_log(), number, self.name)
        return self._batches[number]

    def _driver_log(self) -> SourceLog:
        if self._log is None:
            raise SourceError("a DataFrame source was asked on an executor what to read; only the driver plans: call read there")
        return self._log


def spark_location(location: str) -> str:
    """A location as Spark's Hadoop spells it: fsspec's `s3` and `az` have other names there.

    >>> spark_location("s3://bucket/job"), spark_location("gs://bucket/job"), spark_location("/data/job")
    ('s3a://bucket/job', 'gs://bucket/job', 'file:///data/job')
    """
    if is_local(location):
        return f"file://{location}"
    scheme, _, rest = location.partition("://")
    return f"{_HADOOP_SCHEMES.get(scheme, scheme)}://{rest}"


def refuse_unknown_to_spark(spark: "SparkSession", location: str) -> None:
    """Refuse a place that Spark cannot open: it writes the copies and its own progress there."""
    where = spark_location(location)
    context = spark.sparkContext
    try:
        path = context._jvm.org.apache.hadoop.fs.Path(where)
        path.getFileSystem(context._jsc.hadoopConfiguration()).exists(path)
    except Exception as error:
        reason = str(getattr(error, "java_exception", error)).splitlines()[0]
        raise SourceError(
            f"a streaming DataFrame is copied to the job's checkpoint URL by Spark, and Spark cannot open {where}: {reason}; "
            "give Spark the Hadoop connector for it (spark.jars.packages) and its settings, or keep the job in a folder that all "
            "nodes share"
        ) from error


def _not_on_executors(spark: Any) -> Any:
    raise SourceError("a streaming DataFrame can only be built on the driver")


def _by_path(file: Any) -> str:
    return str(file.path)


def _folder_names(location: str) -> list[str]:
    if is_local(location):
        return [path.name for path in Path(location).glob("*-*")]
    file_system = filesystem(location)
    file_system.invalidate_cache()
    return [entry.rstrip("/").rpartition("/")[2] for entry in file_system.glob(f"{location}/*-*")]


def _remove_folder(folder: str) -> None:
    if is_local(folder):
        shutil.rmtree(folder, ignore_errors=True)
        return
    file_system = filesystem(folder)
    if file_system.exists(folder):
        file_system.rm(folder, recursive=True)
