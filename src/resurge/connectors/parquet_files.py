"""Parquet files: how many rows, which columns, and some of their rows."""

from typing import Any

import msgspec
import polars as pl

from resurge.connectors.file_ranges import FileRange
from resurge.connectors.frames import conform, first_line
from resurge.connectors.locations import is_local, open_file
from resurge.errors import BadFileError, SourceError


def parquet_schema(path: str) -> pl.Schema:
    """The columns of a file."""
    with open_file(path) as file:
        try:
            return pl.Schema(pl.read_parquet_schema(file))
        except Exception as error:
            raise _unreadable(path, error) from error


def parquet_rows(path: str) -> int:
    """How many rows a file has, from its footer."""
    import pyarrow.parquet as pq

    with open_file(path) as file:
        try:
            return int(pq.read_metadata(file).num_rows)
        except Exception as error:
            raise _unreadable(path, error) from error


def cut_parquet(part: FileRange, rows: int, max_rows: int | None) -> FileRange:
    """At most so many rows from the beginning of a range of a file that has `rows` rows."""
    end = rows if max_rows is None else min(rows, part.row_start + max_rows)
    return msgspec.structs.replace(part, row_end=end, byte_start=0, byte_end=0, is_last=end == rows)


def read_parquet(part: FileRange, schema: pl.Schema) -> pl.DataFrame:
    """A range's rows with the schema's columns."""
    rows = part.rows or 0
    try:
        if is_local(part.path):
            lazy = pl.scan_parquet(part.path, glob=False, hive_partitioning=False).select(list(schema))
            frame = lazy.slice(part.row_start, rows).collect()
        else:
            frame = _read_remote(part, rows, list(schema))
        return conform(frame, schema)
    except OSError:
        raise
    except Exception as error:
        wanted = ", ".join(f"{name}: {kind}" for name, kind in schema.items())
        raise BadFileError(
            f"{part.path} rows {part.row_start} to {part.row_end} cannot be read as {wanted}: {first_line(error)}"
        ) from error


def _read_remote(part: FileRange, rows: int, columns: list[str]) -> pl.DataFrame:
    """Only the row groups that the range touches."""
    import pyarrow.parquet as pq

    with open_file(part.path) as handle:
        file = pq.ParquetFile(handle)
        groups, first, seen = [], None, 0
        for index in range(file.num_row_groups):
            end = seen + file.metadata.row_group(index).num_rows
            if seen < part.row_start + rows and end > part.row_start:
                first = seen if first is None else first
                groups.append(index)
            seen = end
        table: Any = file.read_row_groups(groups, columns=columns)
    return pl.DataFrame(pl.from_arrow(table)).slice(part.row_start - (first or 0), rows)


def _unreadable(path: str, error: Exception) -> SourceError:
    if isinstance(error, OSError):
        return SourceError(f"{path} cannot be read: {error}; make it readable and run the same command again")
    return BadFileError(
        f"{path} cannot be read as Parquet ({error}); expected a complete file, written under a name ending in .tmp until it is"
    )
