"""Tables as Arrow IPC bytes, and back without copying."""

import io

import polars as pl


def to_bytes(frame: pl.DataFrame) -> bytes:
    """A table as an Arrow IPC file."""
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="uncompressed", compat_level=pl.CompatLevel.newest())
    return buffer.getvalue()


def from_bytes(content: bytes | memoryview) -> pl.DataFrame:
    """The table in an Arrow IPC file."""
    return pl.read_ipc(io.BytesIO(content))
