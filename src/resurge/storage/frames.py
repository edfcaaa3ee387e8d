"""Tables as Arrow IPC bytes, and back without copying.

Arrow's own writer and reader take a fraction of the time that those of Polars take, most of all for small tables, and its reader
refers to the bytes that it is given. Columns whose type only Polars has are left to Polars. The two are told apart by how the
bytes begin: Arrow writes streams, Polars files.
"""

import io

import polars as pl
import pyarrow as pa

_PLAIN_TYPES = frozenset(
    {
        *(pl.Boolean, pl.String, pl.Binary, pl.Date, pl.Time, pl.Datetime, pl.Duration, pl.Decimal, pl.Float32, pl.Float64),
        *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64),
    }
)
"""Types that Arrow has too, so that they come back as they were."""
_FILE = b"ARROW1"
LEAST_SHARED_BYTES = 1 << 18
"""A smaller part of a file is copied: a table that refers to it would keep all of the file mapped."""
# Views of strings would refer to all text of the table that the rows were taken from.
_WITHOUT_VIEWS = pl.CompatLevel.oldest()


def to_bytes(frame: pl.DataFrame) -> memoryview:
    """A table in Arrow's IPC format, as one record batch.

    >>> from_bytes(to_bytes(pl.DataFrame({"tag": ["a", "b"]}))).height
    2
    """
    if not all(dtype.base_type() in _PLAIN_TYPES for dtype in frame.dtypes):
        return _polars_file(frame)
    table = frame.rechunk().to_arrow(compat_level=_WITHOUT_VIEWS)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return memoryview(sink.getvalue())


def from_bytes(content: bytes | memoryview) -> pl.DataFrame:
    """The table in some bytes, to which a large one refers for as long as it is used."""
    if bytes(content[: len(_FILE)]) == _FILE:
        return pl.read_ipc(io.BytesIO(content))
    shared = content if len(content) >= LEAST_SHARED_BYTES else bytes(content)
    found = pl.from_arrow(pa.ipc.open_stream(pa.py_buffer(shared)).read_all())
    assert isinstance(found, pl.DataFrame)
    return found


def _polars_file(frame: pl.DataFrame) -> memoryview:
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="uncompressed", compat_level=pl.CompatLevel.newest())
    return buffer.getbuffer()
