"""What the tests of the connectors share."""

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from resurge.connectors.contracts import Offset, ReadLimit
from resurge.connectors.reading import latest_offset, read_split
from tests.support.source_logs import MemoryLog


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


class Epochs:
    """Runs a reader's epochs as the engine does."""

    def run(
        self, reader: Any, schema: pl.Schema, start: Offset | None = None, limit: ReadLimit | None = None
    ) -> Iterator[tuple[pl.DataFrame, pl.DataFrame, Offset]]:
        """Good rows, bad rows and end of each epoch, until there is nothing new."""
        start = reader.initialOffset() if start is None else start
        while (end := latest_offset(reader, start, limit or ReadLimit())) != start:
            yield *self.read(reader, schema, start, end), end
            start = end

    def read(self, reader: Any, schema: pl.Schema, start: Offset, end: Offset) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Good and bad rows between two offsets, in the order of the splits."""
        from pyspark import cloudpickle

        shipped = cloudpickle.loads(cloudpickle.dumps(reader))
        splits = cloudpickle.loads(cloudpickle.dumps(reader.partitions(start, end)))
        parts = [read_split(shipped, split, schema) for split in splits]
        good = pl.concat([pl.DataFrame(schema=schema), *(part[0] for part in parts)])
        return good, pl.concat([part[1] for part in parts]) if parts else pl.DataFrame()


@pytest.fixture
def epochs() -> Epochs:
    return Epochs()
