"""A function of the user's, called on the driver with committed output."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import polars as pl

from resurge.connectors.contracts import JobReference, Sink, StagedPart, refuse_other_job
from resurge.connectors.payloads import part_with_rows, rows_of
from resurge.errors import SinkError
from resurge.model.user_code import user_traceback


@dataclass(frozen=True)
class CommittedPart:
    """What one partition of a query gave in one epoch. Whenever it is given again, it has the same identity and the same rows."""

    identity: str
    query: str
    epoch: int
    frame: pl.DataFrame


class CallbackSink(Sink):
    """Calls `function(epoch, frame)` on the driver, or, with per_part=True, `function(part)` for each `CommittedPart`.

    An epoch's rows usually come in one call, and epochs in order. After a crash, rows that were given may be given again; while
    part of a query is being recovered, an epoch comes in several calls. Both look the same to a function of epoch and frame: use
    it to show things. A function that keeps things takes parts: it stores `part.identity` in the same transaction as what it
    does with the rows, and skips an identity that is there. The identity is unique in all jobs.
    """

    def __init__(self, function: Callable[..., Any] | None, *, per_part: bool = False) -> None:
        self.function = function
        self.per_part = per_part
        self._owner: JobReference | None = None
        self._last_epochs: dict[tuple[str, str], int] = {}

    def __reduce__(self) -> tuple[Callable[[None], "CallbackSink"], tuple[None]]:
        """Executors only stage: the function stays on the driver, so it need not be picklable."""
        return (CallbackSink, (None,))

    def open(self, query: str, schema: pl.Schema, job: JobReference) -> None:
        if not callable(self.function):
            expected = "a function of a part" if self.per_part else "a function of (epoch, frame)"
            raise SinkError(f"the callback of query {query!r} is {self.function!r}; expected {expected}")
        self._owner = self._owner or job
        refuse_other_job("this CallbackSink", self._owner, job, "make a new CallbackSink(function) for each job")

    def stage(self, query: str, epoch: int, part: str, attempt: str, frame: pl.DataFrame) -> StagedPart:
        return part_with_rows(query, epoch, part, frame)

    def publish(self, parts: Sequence[StagedPart]) -> None:
        new = [part for part in parts if part.rows and part.epoch > self._last_epochs.get((part.query, part.part), -1)]
        distinct = {part.identity: part for part in new}.values()
        in_order = sorted(distinct, key=lambda part: (part.epoch, part.query, part.part))
        for _, group in groupby(in_order, key=lambda part: part.identity if self.per_part else (part.epoch, part.query)):
            self._give(list(group))

    def forget(self, query: str, epoch: int) -> None:
        self._last_epochs = {key: last for key, last in self._last_epochs.items() if key[0] != query or last > epoch}

    def _give(self, parts: Sequence[StagedPart]) -> None:
        query, epoch = parts[0].query, parts[0].epoch
        if self.function is None or self._owner is None:
            raise SinkError("a callback was asked for before open; expected publish to be called on the driver only")
        frame = pl.concat([rows_of(part) for part in parts])
        try:
            if self.per_part:
                self.function(CommittedPart(f"{self._owner.id}/{parts[0].identity}", query, epoch, frame))
            else:
                self.function(epoch, frame)
        except Exception as error:
            raise SinkError(
                f"the callback of query {query!r} failed for epoch {epoch}: {type(error).__name__}: {error}; "
                f"the epoch will be given again: correct the callback and run the same command again{user_traceback(error)}"
            ) from error
        for part in parts:
            self._last_epochs[query, part.part] = epoch
