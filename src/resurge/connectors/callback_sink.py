"""A function of the user's, called on the driver with every committed epoch."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import polars as pl

from resurge.connectors.contracts import JobReference, Sink, StagedPart, refuse_other_job
from resurge.connectors.payloads import part_with_rows, rows_of
from resurge.errors import SinkError


class CallbackSink(Sink):
    """Calls `function(epoch, frame)` on the driver, in epoch order; an epoch in which the query has no rows makes no call.

    Within one process an epoch's rows are given once. After a crash the last epoch may be given again: keep the epoch number
    with what you do with the rows, and skip a number you have already dealt with. While part of a query is being recovered,
    its parts are published apart, so the same epoch number may come with the remaining parts' rows.
    """

    def __init__(self, function: Callable[[int, pl.DataFrame], Any] | None) -> None:
        self.function = function
        self._owner: JobReference | None = None
        self._last_epochs: dict[tuple[str, str], int] = {}

    def __reduce__(self) -> tuple[Callable[[None], "CallbackSink"], tuple[None]]:
        """Executors only stage: the function stays on the driver, so it need not be picklable."""
        return (CallbackSink, (None,))

    def open(self, query: str, schema: pl.Schema, job: JobReference) -> None:
        if not callable(self.function):
            raise SinkError(f"the callback of query {query!r} is {self.function!r}; expected a function of (epoch, frame)")
        self._owner = self._owner or job
        refuse_other_job("this CallbackSink", self._owner, job, "make a new CallbackSink(function) for each job")

    def stage(self, query: str, epoch: int, part: str, attempt: str, frame: pl.DataFrame) -> StagedPart:
        return part_with_rows(query, epoch, part, frame)

    def publish(self, parts: Sequence[StagedPart]) -> None:
        new = [part for part in parts if part.rows and part.epoch > self._last_epochs.get((part.query, part.part), -1)]
        in_order = sorted(new, key=lambda part: (part.epoch, part.query, part.part))
        for (epoch, query), group in groupby(in_order, key=lambda part: (part.epoch, part.query)):
            self._call(query, epoch, list(group))

    def _call(self, query: str, epoch: int, parts: Sequence[StagedPart]) -> None:
        if self.function is None:
            raise SinkError("a callback was asked for on an executor; expected publish to be called on the driver only")
        distinct = {part.part: part for part in parts}
        try:
            self.function(epoch, pl.concat([rows_of(part) for part in distinct.values()]))
        except Exception as error:
            raise SinkError(
                f"the callback of query {query!r} failed for epoch {epoch}: {type(error).__name__}: {error}; "
                "the epoch will be given again: correct the callback and run the job again"
            ) from error
        for part in distinct:
            self._last_epochs[query, part] = epoch
