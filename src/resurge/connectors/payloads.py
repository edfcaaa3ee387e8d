"""Rows that travel inside a staged part, as Arrow IPC bytes."""

import io

import polars as pl

from resurge.connectors.contracts import StagedPart


def part_with_rows(query: str, epoch: int, part: str, frame: pl.DataFrame) -> StagedPart:
    """A staged part that carries its rows."""
    buffer = io.BytesIO()
    frame.write_ipc(buffer)
    return StagedPart(query, int(epoch), part, frame.height, payload=buffer.getvalue())


def rows_of(part: StagedPart) -> pl.DataFrame:
    """The rows a staged part carries."""
    return pl.DataFrame() if part.payload is None else pl.read_ipc(io.BytesIO(part.payload), use_pyarrow=False)
