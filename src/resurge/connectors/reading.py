"""How driver and worker call a reader: a `SourceReader`, or one that keeps PySpark's contract."""

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl
import pyarrow as pa

from resurge.connectors.contracts import Offset, ReadLimit, SourceReader
from resurge.connectors.frames import BadRow, bad_frame, conform, frame_of_rows
from resurge.errors import ResurgeError, SourceError
from resurge.model.user_code import user_traceback

ROWS_PER_CONVERSION = 50_000


def latest_offset(reader: Any, start: Offset, limit: ReadLimit) -> Offset:
    """Where the next epoch may end."""
    try:
        if isinstance(reader, SourceReader):
            return checked_offset(reader, reader.latest_offset(start, limit))
        if not takes_start_and_limit(reader):
            return checked_offset(reader, reader.latestOffset())
        return checked_offset(reader, _spark_latest_offset(reader, start, limit))
    except ResurgeError:
        raise
    except Exception as error:
        raise source_error(reader, "list its newest input", error) from error


def takes_start_and_limit(reader: Any) -> bool:
    """Whether `latestOffset` takes (start, limit), as since PySpark 4.2, or nothing, as before."""
    parameters = inspect.signature(reader.latestOffset).parameters.values()
    return len([p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]) > 0


def _spark_latest_offset(reader: Any, start: Offset, limit: ReadLimit) -> Any:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    default = reader.getDefaultReadLimit() if hasattr(reader, "getDefaultReadLimit") else ReadAllAvailable()
    if limit.max_rows is None:
        return reader.latestOffset(start, default)
    if isinstance(default, ReadMaxRows):
        return reader.latestOffset(start, ReadMaxRows(min(default.max_rows, limit.max_rows)))
    if not isinstance(default, ReadAllAvailable):
        return reader.latestOffset(start, default)  # it asked for files or bytes: it may know no other limit
    try:
        return reader.latestOffset(start, ReadMaxRows(limit.max_rows))
    except Exception:  # Spark never passes a limit that the reader did not ask for, so many readers take none
        return reader.latestOffset(start, default)


def checked_offset(reader: Any, offset: Any) -> Offset:
    """An offset a reader returned, if it is one."""
    if not isinstance(offset, dict):
        raise SourceError(
            f"source {reader_name(reader)} gave the offset {offset!r}; expected a dict of numbers, strings and booleans: "
            "return such a dict"
        )
    return offset


def read_split(reader: Any, partition: Any, schema: pl.Schema) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A split's good rows, and its bad rows as BAD_ROW_SCHEMA."""
    try:
        if isinstance(reader, SourceReader):
            good, bad = reader.read_frames(partition)
            return conform(good, schema), bad
        return frames(reader.read(partition), schema, f"{reader_name(reader)} {split_name(partition)}")
    except ResurgeError:
        raise
    except Exception as error:
        raise source_error(reader, f"read {split_name(partition)}", error) from error


def frames(items: Iterable[Any], schema: pl.Schema, where: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Good and bad rows of what a PySpark reader yields: tuples, rows or Arrow record batches."""
    good: list[pl.DataFrame] = []
    bad: list[BadRow] = []
    first_row = 0
    for chunk in _chunks(items):
        if isinstance(chunk, list):
            frame, refused = frame_of_rows(chunk, schema, lambda index, first=first_row: f"{where} row {first + index + 1}")  # type: ignore[misc]
            first_row += len(chunk)
            bad.extend(refused)
        else:
            frame = _frame_of_batch(chunk, schema)
        good.append(frame)
    return pl.concat(good) if good else pl.DataFrame(schema=schema), bad_frame(bad)


def _chunks(items: Iterable[Any]) -> Iterator[Any]:
    """Record batches one by one, rows in lists."""
    rows: list[Any] = []
    for item in items:
        if isinstance(item, pa.RecordBatch | pa.Table):
            yield item
            continue
        rows.append(item)
        if len(rows) == ROWS_PER_CONVERSION:
            yield rows
            rows = []
    if rows:
        yield rows


def _frame_of_batch(batch: Any, schema: pl.Schema) -> pl.DataFrame:
    frame = pl.DataFrame(pl.from_arrow(batch))
    missing = [name for name in schema if name not in frame.columns]
    if missing:
        raise SourceError(
            f"a record batch has the columns {', '.join(frame.columns)}, but the schema also has {', '.join(missing)}: "
            "yield every column of the schema"
        )
    return conform(frame, schema)


def reader_name(reader: Any) -> str:
    """What to call a reader in an error."""
    return str(getattr(reader, "name", None) or type(reader).__name__)


def split_name(partition: Any) -> str:
    """What to call a split in an error."""
    value = getattr(partition, "value", None)
    shown = repr(partition if value is None else value)
    return f"split {shown if len(shown) <= 200 else shown[:200] + '...'}"


def source_error(reader: Any, action: str, error: Exception) -> SourceError:
    """A third-party reader's failure, with the source and the split named."""
    return SourceError(
        f"source {reader_name(reader)} could not {action}: {type(error).__name__}: {error}; "
        f"the epoch was not committed: fix the cause and run the same command again{user_traceback(error)}"
    )
