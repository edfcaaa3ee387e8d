"""Output that is only counted, for benchmarks."""

from collections.abc import Callable, Sequence

import polars as pl

from resurge.connectors.contracts import Sink, StagedPart


class DiscardSink(Sink):
    """Keeps no rows; `rows` says how many were committed, each counted once."""

    def __init__(self) -> None:
        self.rows = 0
        self._last_epochs: dict[tuple[str, str], int] = {}

    def __reduce__(self) -> tuple[Callable[[], "DiscardSink"], tuple[()]]:
        return (DiscardSink, ())

    def open(self, query: str, schema: pl.Schema) -> None:
        """There is nothing to check."""

    def stage(self, query: str, epoch: int, part: str, attempt: str, frame: pl.DataFrame) -> StagedPart:
        return StagedPart(query, int(epoch), part, frame.height)

    def publish(self, parts: Sequence[StagedPart]) -> None:
        for part in sorted(parts, key=lambda part: part.epoch):
            if part.epoch > self._last_epochs.get((part.query, part.part), -1):
                self._last_epochs[part.query, part.part] = part.epoch
                self.rows += part.rows
