"""Any PySpark Python data source, unchanged: a `DataSource` class with options, or a ready stream reader."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from resurge.connectors.contracts import BadRowPolicy, Offset, ReadLimit, Source, SourceLog, SourceReader
from resurge.connectors.frames import refuse_bad_rows
from resurge.connectors.reading import checked_offset, frames, latest_offset, read_split, source_error, split_name
from resurge.connectors.spark_types import polars_schema, struct_type
from resurge.errors import ResurgeError, SourceError, TopologyError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class PythonSource(Source):
    """A `DataSource` class with its options, or a stream reader object with its schema.

    Instants (Spark's TIMESTAMP) arrive as naive UTC: a datetime without zone is taken to be UTC already.
    """

    source: Any
    options: Mapping[str, str] = field(default_factory=dict)
    declared_schema: Any = None
    bad_rows: BadRowPolicy = "fail"

    def __post_init__(self) -> None:
        if self.bad_rows not in ("fail", "route"):
            raise TopologyError(f"bad_rows is {self.bad_rows!r}; expected 'fail' or 'route'")
        if isinstance(self.source, type):
            return
        if not hasattr(self.source, "read") or not hasattr(self.source, "initialOffset"):
            raise TopologyError(
                f"a Python source is {self.source!r}; expected a pyspark DataSource class, or a DataSourceStreamReader or "
                "SimpleDataSourceStreamReader object"
            )
        if self.declared_schema is None:
            raise TopologyError(
                f"the reader {type(self.source).__name__} was given without a schema, and a reader does not know its own: "
                "pass declared_schema, such as 'id BIGINT, tags ARRAY<STRING>'"
            )

    def schema(self) -> pl.Schema:
        return polars_schema(self._spark_schema(self._data_source()))

    def reader(self, log: SourceLog) -> "PythonReader":
        data_source = self._data_source()
        inner = self.source if data_source is None else _stream_reader(data_source, self._spark_schema(data_source))
        return PythonReader(self._name(data_source), _planned(inner, self.schema()), self.schema(), self.bad_rows)

    def with_bad_rows(self, policy: BadRowPolicy) -> "PythonSource":
        return replace(self, bad_rows=policy)

    def signature(self) -> str:
        return f"{self._name(self._data_source())}: {super().signature()}"

    def _data_source(self) -> Any:
        if not isinstance(self.source, type):
            return None
        from pyspark.sql.datasource import CaseInsensitiveDict

        return self.source(options=CaseInsensitiveDict(self.options))

    def _spark_schema(self, data_source: Any) -> "StructType":
        if self.declared_schema is not None or data_source is None:
            return struct_type(self.declared_schema)
        return struct_type(data_source.schema())

    def _name(self, data_source: Any) -> str:
        return type(self.source).__name__ if data_source is None else str(data_source.name())


def _stream_reader(data_source: Any, schema: "StructType") -> Any:
    """The reader Spark would use: the planned one, or else the simple one."""
    from pyspark.errors import PySparkNotImplementedError

    try:
        return data_source.streamReader(schema)
    except PySparkNotImplementedError:
        pass
    try:
        return data_source.simpleStreamReader(schema)
    except PySparkNotImplementedError as error:
        raise SourceError(
            f"data source {data_source.name()!r} offers no stream reader; expected streamReader or simpleStreamReader: "
            "it can only be read as a batch"
        ) from error


def _planned(reader: Any, schema: pl.Schema) -> Any:
    from pyspark.sql.datasource import SimpleDataSourceStreamReader

    return SimpleReader(reader, schema) if isinstance(reader, SimpleDataSourceStreamReader) else reader


@dataclass(frozen=True)
class SimpleSplit:
    """All that a simple reader gives between two offsets."""

    start: Offset
    end: Offset


@dataclass(frozen=True)
class SimpleReader(SourceReader):
    """A `SimpleDataSourceStreamReader` as a planned one: one split, always read with `readBetweenOffsets`."""

    reader: Any
    schema: pl.Schema

    def initialOffset(self) -> Offset:
        return self.reader.initialOffset()  # type: ignore[no-any-return]

    def latest_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        rows, end = self.reader.read(start)
        if end == start and next(iter(rows), None) is not None:
            raise SourceError(
                f"the simple reader {type(self.reader).__name__} returned rows without moving its offset {start!r}; "
                "expected an end offset behind the rows: return one, or the same rows come again for ever"
            )
        return checked_offset(self.reader, end)

    def partitions(self, start: Offset, end: Offset) -> Sequence[SimpleSplit]:
        return [] if start == end else [SimpleSplit(start, end)]

    def read_frames(self, partition: SimpleSplit) -> tuple[pl.DataFrame, pl.DataFrame]:
        rows = self.reader.readBetweenOffsets(partition.start, partition.end)
        return frames(rows, self.schema, f"{type(self.reader).__name__} {split_name(partition)}")

    def commit(self, end: Offset) -> None:
        self.reader.commit(end)


@dataclass(frozen=True)
class PythonReader(SourceReader):
    """A third-party reader behind our names for its failures and its bad rows."""

    name: str
    inner: Any
    schema: pl.Schema
    bad_rows: BadRowPolicy

    def initialOffset(self) -> Offset:
        return checked_offset(self, self._call("say where it begins", self.inner.initialOffset))

    def latest_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        return latest_offset(self.inner, start, limit)

    def newest_offset(self, start: Offset) -> Offset:
        """What the reader reports as its newest offset, else the start: asking `latestOffset` may have side effects."""
        report = getattr(self.inner, "reportLatestOffset", None)
        return (self._call("report its newest offset", report) if report else None) or start

    def partitions(self, start: Offset, end: Offset) -> Sequence[Any]:
        return [] if start == end else list(self._call(f"plan {start!r} to {end!r}", self.inner.partitions, start, end))

    def read_frames(self, partition: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
        good, bad = read_split(self.inner, partition, self.schema)
        if self.bad_rows == "fail":
            refuse_bad_rows(bad)
        return good, bad

    def commit(self, end: Offset) -> None:
        self._call(f"take note of the commit of {end!r}", self.inner.commit, end)

    def stop(self) -> None:
        """Let the reader free what it holds."""
        stop = getattr(self.inner, "stop", None)
        if stop is not None:
            self._call("stop", stop)

    def _call(self, action: str, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ResurgeError:
            raise
        except Exception as error:
            raise source_error(self, action, error) from error
