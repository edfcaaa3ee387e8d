"""Committed output kept in the driver's memory, for tests and notebooks."""

import threading
from collections.abc import Callable, Sequence

import polars as pl

from resurge.connectors.contracts import JobReference, Sink, StagedPart, refuse_other_job
from resurge.connectors.payloads import part_with_rows, rows_of
from resurge.errors import SinkError


class MemorySink(Sink):
    """`table()` has all committed rows, each once. A copy sent to an executor is empty: rows travel in the staged parts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: JobReference | None = None
        self._schemas: dict[str, pl.Schema] = {}
        self._frames: dict[tuple[str, int, str], pl.DataFrame] = {}

    def __reduce__(self) -> tuple[Callable[[], "MemorySink"], tuple[()]]:
        return (MemorySink, ())

    def open(self, query: str, schema: pl.Schema, job: JobReference) -> None:
        with self._lock:
            self._owner = self._owner or job
            refuse_other_job("this MemorySink", self._owner, job, "make a new MemorySink() for each job")
            self._schemas[query] = pl.Schema(schema)

    def stage(self, query: str, epoch: int, part: str, attempt: str, frame: pl.DataFrame) -> StagedPart:
        return part_with_rows(query, epoch, part, frame)

    def publish(self, parts: Sequence[StagedPart]) -> None:
        with self._lock:
            for part in parts:
                self._frames.setdefault((part.query, part.epoch, part.part), rows_of(part))

    @property
    def frames(self) -> list[pl.DataFrame]:
        """The committed frames, by query, epoch and part."""
        with self._lock:
            return [self._frames[key] for key in sorted(self._frames)]

    def table(self, query: str | None = None, *, epoch: bool = False) -> pl.DataFrame:
        """All committed rows of a query, by epoch and part; with epoch=True a first column says of which epoch they are."""
        with self._lock:
            chosen = self._chosen(query)
            schema = self._schemas.get(chosen, pl.Schema()) if chosen is not None else pl.Schema()
            kept = sorted((key for key in self._frames if key[0] == chosen), key=lambda key: key[1:])
            frames = [_with_epoch(self._frames[key], key[1]) if epoch else self._frames[key] for key in kept]
        empty = pl.DataFrame(schema={"epoch": pl.Int64, **schema} if epoch else schema)
        filled = [frame for frame in frames if frame.height]
        return pl.concat(filled) if filled else empty

    def _chosen(self, query: str | None) -> str | None:
        names = sorted({*self._schemas, *(key[0] for key in self._frames)})
        if query is None and len(names) <= 1:
            return names[0] if names else None
        if query not in names:
            raise SinkError(
                f"this sink has the rows of {', '.join(names) or 'no query'}, but {query!r} was asked for: name one of them"
            )
        return query


def _with_epoch(frame: pl.DataFrame, epoch: int) -> pl.DataFrame:
    return frame.select(pl.lit(epoch, dtype=pl.Int64).alias("epoch"), pl.all())
