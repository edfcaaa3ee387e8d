"""What generated sources share: rows are numbered, and a clock or a bound per epoch says how many there are by now."""

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from resurge.connectors.contracts import Offset, ReadLimit, SourceReader
from resurge.connectors.frames import bad_frame
from resurge.errors import SourceError, TopologyError


@dataclass(frozen=True)
class RowRange:
    """One split: rows `first` up to, not including, `last`, of a source that began at `started_at` (Unix seconds)."""

    first: int
    last: int
    started_at: float | None


@dataclass(frozen=True)
class Pace:
    """How rows become available: so many per second since the start, or without a clock so many per epoch; at most `total`."""

    rows_per_second: float | None
    rows_per_epoch: int | None = None
    total: int | None = None
    splits: int = 2
    block_rows: int = 1

    def check(self, what: str) -> None:
        """Refuse a pace that cannot be kept."""
        rate = self.rows_per_second
        if rate is not None and not (isinstance(rate, int | float) and 0 < rate < 1e12):
            raise TopologyError(f"the rows per second of {what} are {rate!r}; expected a number above 0")
        for name, value in (("rows per epoch", self.rows_per_epoch), ("total", self.total), ("splits", self.splits)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise TopologyError(f"the {name} of {what} is {value!r}; expected a whole number of at least 1")
        if rate is None and self.rows_per_epoch is None and self.total is None:
            raise TopologyError(f"{what} has no end and no speed: give it rows per second, rows per epoch or a total")

    def rows_by(self, now_s: float, started_at: float) -> int:
        """How many rows have arrived by now."""
        due = int((now_s - started_at) * self.rows_per_second) if self.rows_per_second else 0
        return due if self.total is None else min(due, self.total)

    def arrivals_us(self, split: RowRange) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """When each row of a split arrived, in microseconds since 1970."""
        if self.rows_per_second is None or split.started_at is None:
            raise SourceError(
                "a source without rows per second was asked when its rows arrived; expected an offset with a start time"
            )
        positions = np.arange(split.first, split.last, dtype=np.int64)
        return (positions / self.rows_per_second * 1e6).astype(np.int64) + round(split.started_at * 1e6)


class PacedReader(SourceReader):
    """A reader of numbered rows. The clock is read on the driver only, in `latest_offset`; offsets say the rest."""

    def __init__(self, name: str, pace: Pace, clock: Callable[[], float] = time.time) -> None:
        self.name = name
        self.pace = pace
        self._clock: Callable[[], float] | None = clock
        self._first_asked_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_clock": None}

    @abstractmethod
    def rows(self, split: RowRange) -> pl.DataFrame:
        """The rows of a split: a pure function of it."""

    def initialOffset(self) -> Offset:
        return {"rows": 0, "started_at": None}

    def latest_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        """As many rows as have arrived, within the limits; the first call is the start of time."""
        started_at, available = self._available(start)
        first = int(start["rows"])
        bounds = [bound for bound in (limit.max_rows, self.pace.rows_per_epoch) if bound is not None]
        last = min([available, *(first + bound for bound in bounds)])
        return start if last <= first else {"rows": last, "started_at": started_at}

    def newest_offset(self, start: Offset) -> Offset:
        """All that has arrived; a source without clock and total is never behind."""
        if self.pace.rows_per_second is None and self.pace.total is None:
            return start
        started_at, available = self._available(start)
        return {"rows": max(available, int(start["rows"])), "started_at": started_at}

    def partitions(self, start: Offset, end: Offset) -> Sequence[RowRange]:
        """About equal splits, cut between blocks."""
        first, last, block = int(start["rows"]), int(end["rows"]), self.pace.block_rows
        cuts = [first + (last - first) * index // self.pace.splits for index in range(1, self.pace.splits)]
        aligned = sorted({cut // block * block for cut in cuts if first < cut // block * block < last})
        bounds = [first, *aligned, last]
        return [RowRange(low, high, end["started_at"]) for low, high in pairwise(bounds) if high > low]

    def read_frames(self, partition: RowRange) -> tuple[pl.DataFrame, pl.DataFrame]:
        return self.rows(partition), bad_frame([])

    def rows_between(self, start: Offset, end: Offset) -> int:
        return int(end["rows"]) - int(start["rows"])

    def arrival_s(self, start: Offset, end: Offset) -> float | None:
        """The mean arrival time: rows arrive evenly."""
        if self.pace.rows_per_second is None or end["started_at"] is None:
            return None
        return float(end["started_at"] + (int(start["rows"]) + int(end["rows"]) - 1) / 2 / self.pace.rows_per_second)

    def _available(self, start: Offset) -> tuple[float | None, int]:
        if self.pace.rows_per_second is None:
            unbounded = int(start["rows"]) + (self.pace.rows_per_epoch or 0)
            return None, unbounded if self.pace.total is None else self.pace.total
        if self._clock is None:
            raise SourceError(f"{self.name} was asked on an executor how much has arrived; only the driver has the clock")
        now_s = self._clock()
        if self._first_asked_s is None:
            self._first_asked_s = now_s
        started_at = self._first_asked_s if start["started_at"] is None else float(start["started_at"])
        return started_at, self.pace.rows_by(now_s, started_at)
