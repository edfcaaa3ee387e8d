"""Output that is only counted, for benchmarks."""

from collections.abc import Callable, Sequence

import polars as pl

from resurge.connectors.contracts import JobReference, Sink, StagedPart, refuse_other_job


class DiscardSink(Sink):
    """Keeps no rows; `rows` says how many were committed, each counted once."""

    def __init__(self) -> None:
        self.rows = 0
        self._owner: JobReference | None = None
        self._last_epochs: dict[tuple[str, str], int] = {}

    def __reduce__(self) -> tuple[Callable[[], "DiscardSink"], tuple[()]]:
        return (DiscardSink, ())

    def open(self, query: str, schema: pl.Schema, job: JobReference) -> None:
        self._owner = self._owner or job
        refuse_other_job("this DiscardSink", self._owner, job, "make a new DiscardSink() for each job")

    def stage(self, query: str, epoch: int, part: str, attempt: str, frame: pl.DataFrame) -> StagedPart:
        return StagedPart(query, int(epoch), part, frame.height)

    def publish(self, parts: Sequence[StagedPart]) -> None:
        for part in sorted(parts, key=lambda part: part.epoch):
            if part.epoch > self._last_epochs.get((part.query, part.part), -1):
                self._last_epochs[part.query, part.part] = part.epoch
                self.rows += part.rows

    def forget(self, query: str, epoch: int) -> None:
        self._last_epochs = {key: last for key, last in self._last_epochs.items() if key[0] != query or last > epoch}
