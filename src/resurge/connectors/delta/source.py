"""A Delta table as a source of appended rows: the files of the version that is there first, then those that each commit adds."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec
import polars as pl

from resurge.connectors.contracts import BAD_ROW_SCHEMA, Offset, ReadLimit, Source, SourceLog, SourceReader
from resurge.connectors.extras import check_extra, client_library
from resurge.connectors.frames import conform
from resurge.connectors.locations import open_file, plain_location
from resurge.errors import SourceError, TopologyError


@dataclass(frozen=True)
class AddedFile:
    """A file of a commit; the values of partition columns are not in it."""

    path: str
    rows: int
    partition_values: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True)
class DeltaSource(Source):
    """A table; `delta` makes one."""

    location: str
    columns: pl.Schema
    max_rows_per_epoch: int | None = None

    def schema(self) -> pl.Schema:
        return self.columns

    def reader(self, log: SourceLog) -> "DeltaReader":
        return DeltaReader(self, log)


def delta(
    location: str | os.PathLike[str],
    schema: pl.Schema | Mapping[str, Any] | None = None,
    *,
    max_rows_per_epoch: int | None = None,
) -> DeltaSource:
    """The rows of a Delta table, and those that are appended to it; whole files, so that an epoch may have some more rows.

    Compaction is ignored. A commit that deletes or changes rows stops the job. The schema is read from the table if not given.
    """
    check_extra("deltalake", "delta", f"delta({os.fspath(location)!r})")
    if max_rows_per_epoch is not None and (not isinstance(max_rows_per_epoch, int) or max_rows_per_epoch < 1):
        raise TopologyError(f"max_rows_per_epoch of {location} is {max_rows_per_epoch!r}; expected at least 1")
    where = plain_location(location)
    try:
        columns = pl.Schema(schema) if schema is not None else pl.scan_delta(where).collect_schema()
    except Exception as error:
        raise TopologyError(
            f"{where} is no Delta table whose schema can be read ({error}): create it, or pass schema=..."
        ) from error
    return DeltaSource(where, columns, max_rows_per_epoch)


class DeltaReader(SourceReader):
    """Offset {"version": the version that is read next, "file": its first file that is not read yet}."""

    def __init__(self, source: DeltaSource, log: SourceLog) -> None:
        self.source = source
        self.name = f"delta({source.location!r})"
        self._log: SourceLog | None = log
        self._known: dict[int, tuple[AddedFile, ...]] = {}
        self._first: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_log": None, "_known": {}}

    def initialOffset(self) -> Offset:
        """The version that was there when the job began, from its first file on; decided once and kept."""
        assert self._log is not None, "only the driver asks where a source begins"
        if not self._log.numbers():
            self._log.create(0, msgspec.json.encode({"version": self._table().version(), "file": 0}))
        offset: Offset = msgspec.json.decode(self._log.read(0))
        return offset

    def latest_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        """What has been committed, within the limits but at least one file."""
        bounds = [bound for bound in (limit.max_rows, self.source.max_rows_per_epoch) if bound is not None]
        return self._end(start, min(bounds, default=None))

    def newest_offset(self, start: Offset) -> Offset:
        return self._end(start, None)

    def rows_between(self, start: Offset, end: Offset) -> int:
        return sum(file.rows for file in self.partitions(start, end))

    def partitions(self, start: Offset, end: Offset) -> Sequence[AddedFile]:
        last = end["version"] if end["file"] else end["version"] - 1
        return [file for version, index, file in self._files(start, last) if (version, index) < (end["version"], end["file"])]

    def read_frames(self, partition: AddedFile) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of one file, with the columns that the table is partitioned by."""
        try:
            with open_file(partition.path) as file:
                found = pl.read_parquet(file, hive_partitioning=False)
            columns = self.source.columns
            added = [_literal(value, columns[name]).alias(name) for name, value in partition.partition_values if name in columns]
            return conform(found.with_columns(added), self.source.columns), pl.DataFrame(schema=BAD_ROW_SCHEMA)
        except FileNotFoundError as error:
            raise SourceError(
                f"{partition.path} is gone before it was read: VACUUM or another writer removed it. Restore it, or start a new job"
            ) from error
        except pl.exceptions.PolarsError as error:
            raise SourceError(f"{partition.path} does not have the columns {dict(self.source.columns)}: {error}") from error

    def commit(self, end: Offset) -> None:
        """What was read is not listed again."""
        self._known = {version: files for version, files in self._known.items() if version >= end["version"]}

    def _end(self, start: Offset, max_rows: int | None) -> Offset:
        newest = int(self._table().version())
        if newest < start["version"] - 1:
            raise SourceError(
                f"{self.source.location} is at version {newest}, but versions up to {start['version'] - 1} were read: the table was "
                "deleted and made again. To read the new one, start a new job with a checkpoint folder of its own"
            )
        rows = 0
        for version, index, file in self._files(start, newest):
            if max_rows is not None and rows and rows + file.rows > max_rows:
                return {"version": version, "file": index}
            rows += file.rows
        return {"version": max(newest + 1, start["version"]), "file": 0}

    def _files(self, start: Offset, last: int) -> Iterator[tuple[int, int, AddedFile]]:
        for version in range(start["version"], last + 1):
            for index, file in enumerate(self._added(version)):
                if (version, index) >= (start["version"], start["file"]):
                    yield version, index, file

    def _added(self, version: int) -> tuple[AddedFile, ...]:
        if version not in self._known:
            if self._first is None:
                self._first = self.initialOffset()["version"]
            self._known[version] = tuple(self._snapshot(version) if version == self._first else self._committed(version))
        return self._known[version]

    def _snapshot(self, version: int) -> list[AddedFile]:
        table = self._table(version)
        _check_features(self.source.location, table.metadata().configuration)
        found = pl.DataFrame(table.get_add_actions(flatten=False)).to_dicts()
        return sorted((self._file(action) for action in found), key=lambda file: file.path)

    def _committed(self, version: int) -> list[AddedFile]:
        path = f"{self.source.location}/_delta_log/{version:020d}.json"
        try:
            with open_file(path) as file:
                actions = [json.loads(line) for line in file.read().decode().splitlines() if line.strip()]
        except FileNotFoundError as error:
            raise SourceError(
                f"{path} is gone before it was read: the table's log was cleaned. Start a new job, and keep the log for longer "
                "(delta.logRetentionDuration)"
            ) from error
        for action in actions:
            if action.get("remove", {}).get("dataChange"):
                raise SourceError(
                    f"version {version} of {self.source.location} deletes or changes rows; a stream can only take what is appended: "
                    "start a new job, which reads the table as it is now"
                )
            if "metaData" in action:
                _check_features(self.source.location, action["metaData"].get("configuration", {}))
        return [self._file(action["add"]) for action in actions if action.get("add", {}).get("dataChange")]

    def _file(self, action: Mapping[str, Any]) -> AddedFile:
        if action.get("deletionVector"):
            raise SourceError(
                f"{self.source.location} has deletion vectors, which cannot be read as a stream: compact the table first"
            )
        rows = action["num_records"] if "num_records" in action else json.loads(action.get("stats") or "{}").get("numRecords")
        values = action.get("partition" if "partition" in action else "partitionValues") or {}
        texts = ((name, None if value is None else str(value)) for name, value in values.items())
        path = unquote(action["path"])
        is_whole = "://" in path or path.startswith("/")
        return AddedFile(path if is_whole else f"{self.source.location}/{path}", int(rows or 0), tuple(texts))

    def _table(self, version: int | None = None) -> Any:
        library = client_library("deltalake", "delta", "Delta Lake")
        try:
            return library.DeltaTable(self.source.location, version=version)
        except Exception as error:
            raise SourceError(f"the Delta table {self.source.location} could not be opened: {error}") from error


def _literal(text: str | None, kind: pl.DataType) -> pl.Expr:
    """The value of a partition column, which the log has as text."""
    value = pl.lit(text, pl.String)
    if isinstance(kind, pl.Boolean):
        return value.str.to_lowercase() == "true"
    if isinstance(kind, pl.Date):
        return value.str.to_date()
    return value.str.to_datetime(time_unit="us") if isinstance(kind, pl.Datetime) else value.cast(kind)


def _check_features(location: str, configuration: Mapping[str, Any]) -> None:
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        raise SourceError(f"{location} maps columns to other names (delta.columnMapping.mode), which cannot be read as a stream")
