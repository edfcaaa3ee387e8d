"""A source whose epochs and splits are written down in the test, and a sink that keeps what was shown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from resurge.connectors.contracts import Offset, Source, SourceLog, SourceReader
from resurge.connectors.frames import bad_frame


@dataclass(frozen=True)
class ScriptedSource(Source):
    """Epoch n consists of the n-th list of splits."""

    epochs: tuple[tuple[pl.DataFrame, ...], ...]
    columns: tuple[tuple[str, Any], ...]

    def schema(self) -> pl.Schema:
        return pl.Schema(dict(self.columns))

    def reader(self, log: SourceLog) -> "ScriptedReader":
        return ScriptedReader(self.epochs)


class ScriptedReader(SourceReader):
    """No more than a reader must offer."""

    def __init__(self, epochs: Sequence[Sequence[pl.DataFrame]]) -> None:
        self.epochs = epochs

    def initialOffset(self) -> Offset:
        return {"epoch": 0}

    def latest_offset(self, start: Offset, limit: object) -> Offset:
        return {"epoch": min(start["epoch"] + 1, len(self.epochs))}

    def partitions(self, start: Offset, end: Offset) -> Sequence[Any]:
        return [(e, s) for e in range(start["epoch"], end["epoch"]) for s in range(len(self.epochs[e]))]

    def read(self, partition: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        yield from self.epochs[partition[0]][partition[1]].to_arrow().to_batches()

    def read_frames(self, partition: tuple[int, int]) -> tuple[pl.DataFrame, pl.DataFrame]:
        schema = self.epochs[partition[0]][partition[1]].schema
        return pl.DataFrame(pl.from_arrow(list(self.read(partition)), schema=schema)), bad_frame([])


def scripted(epochs: Sequence[Sequence[pl.DataFrame]]) -> ScriptedSource:
    """A source of these splits per epoch."""
    first = next(frame for splits in epochs for frame in splits)
    return ScriptedSource(tuple(tuple(splits) for splits in epochs), tuple(first.schema.items()))
