"""What a source and a sink must do. Sources follow PySpark's own streaming reader contract."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec
import polars as pl

from resurge.errors import SinkError

Offset = dict[str, Any]
BadRowPolicy = Literal["fail", "route"]


class SourceLog(Protocol):
    """A durable folder of a source's own: numbered entries, each written once."""

    def create(self, number: int, content: bytes) -> bool:
        """Write an entry if its number is free; False if it was taken."""

    def read(self, number: int) -> bytes:
        """An entry's content."""

    def numbers(self) -> list[int]:
        """The numbers of all entries, in order."""

    def remove(self, number: int) -> None:
        """Delete an entry that is never read again."""

    def skipped(self) -> list[str]:
        """The files that the user has chosen to skip."""


class StreamReader(Protocol):
    """PySpark's `DataSourceStreamReader`, as far as Resurge calls it; `PythonSource` makes a `SourceReader` of it.

    `initialOffset`, `latestOffset`, `partitions` and `commit` are called on the driver, `read` on the executors, with the
    reader pickled. `latestOffset` may take (start, limit), as in PySpark 4.2, or nothing, as before. The same (start, end)
    must always give the same partitions, and the same partition the same rows: an epoch may be read again.
    """

    def initialOffset(self) -> Offset:
        """Where the stream begins."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[Any]:
        """The splits between two offsets."""

    def read(self, partition: Any) -> Iterator[Any]:
        """A split's rows: tuples or Arrow record batches."""

    def commit(self, end: Offset) -> None:
        """Rows up to here are never asked for again."""


@dataclass(frozen=True)
class ReadLimit:
    """How much one epoch may take; None is no limit."""

    max_rows: int | None = None


class SourceReader(ABC):
    """What the engine calls on the reader of a source; what a source need not know has a default.

    `read_frames` is called on the executors, with the reader pickled; everything else on the driver. The same (start, end)
    must always give the same partitions, and the same partition the same rows: an epoch may be read again. Errors call a reader
    by its `name`, if it has one, else by its class.
    """

    @abstractmethod
    def initialOffset(self) -> Offset:
        """Where the stream begins."""

    @abstractmethod
    def latest_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Where the next epoch may end."""

    @abstractmethod
    def partitions(self, start: Offset, end: Offset) -> Sequence[Any]:
        """The splits between two offsets."""

    @abstractmethod
    def read_frames(self, partition: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
        """A split's good rows, and its bad rows as BAD_ROW_SCHEMA."""

    def start(self, session: Callable[[], Any], folder: str) -> None:  # noqa: B027
        """Before the first offset is asked for: begin what the reader runs by itself. It may ask for the Spark session."""

    def stop(self) -> None:  # noqa: B027
        """Let go of what the reader holds."""

    def commit(self, end: Offset) -> None:  # noqa: B027
        """Rows up to here are never asked for again."""

    def newest_offset(self, start: Offset) -> Offset | None:
        """Everything there is now, to show the lag; None if it is not known."""
        return None

    def rows_between(self, start: Offset, end: Offset) -> int | None:
        """How many rows lie between two offsets; None if it is not known cheaply."""
        return None

    def lag_by_partition(self, start: Offset, end: Offset) -> dict[str, int]:
        """How many rows of each partition lie between two offsets, where the source knows its partitions."""
        return {}

    def arrival_s(self, start: Offset, end: Offset) -> float | None:
        """The mean arrival time (Unix seconds) of the rows between two offsets; None if it is not known."""
        return None


class Source(ABC):
    """Plain data that describes a source; building one opens nothing."""

    bad_rows: BadRowPolicy = "fail"
    """Whether rows that cannot be read fail the job, or are a stream of their own."""

    @abstractmethod
    def schema(self) -> pl.Schema:
        """The columns of the rows."""

    @abstractmethod
    def reader(self, log: SourceLog) -> SourceReader:
        """A reader; `log` is a durable folder of its own, kept with the job's checkpoints."""

    def with_bad_rows(self, policy: BadRowPolicy) -> "Source":
        """The same source with another policy; a source that has no bad rows stays as it is."""
        return self

    def signature(self) -> str:
        """What must not change between two runs of a job."""
        return f"{type(self).__name__}({', '.join(f'{name}: {kind}' for name, kind in self.schema().items())})"


BAD_ROW_SCHEMA = pl.Schema({"location": pl.String, "row": pl.String, "error": pl.String})


class JobReference(msgspec.Struct, frozen=True):
    """The job that writes to a sink. `id` is made when the job begins and is the same after every restart."""

    id: str
    topology: str
    checkpoint_url: str

    def __str__(self) -> str:
        return f"job {self.id} (topology {self.topology!r}, kept at {self.checkpoint_url})"


class StagedPart(msgspec.Struct, frozen=True):
    """One part of a query's output of one epoch, written but not yet shown. `part` names the query partition."""

    query: str
    epoch: int
    part: str
    rows: int
    location: str | None = None
    payload: bytes | None = None
    key_groups: tuple[int, ...] = ()

    @property
    def identity(self) -> str:
        """Names these rows for the life of the job: whenever they are published again, it is under the same identity.

        >>> StagedPart("counts", 7, "3", rows=2).identity
        'counts/7/3'
        """
        return f"{self.query}/{self.epoch}/{self.part}"


class Sink(ABC):
    """Where a query's committed output goes. Plain data that is pickled to the executors.

    Epochs and parts have the same names in every job. A sink that remembers them belongs to the first job that opens it: it
    keeps that job's `JobReference` with what it remembers, and refuses another job in `open` (`refuse_other_job`).

    The life of an output: `stage` on an executor, possibly several times for the same (epoch, part) because an attempt may
    be abandoned; then the engine logs the commit; then `publish` on the driver, in epoch order per part. After a crash the
    last `publish` of a part may be repeated with the same rows: publishing twice must show them once. Nothing that was only
    staged may ever be seen by a reader.
    """

    @abstractmethod
    def open(self, query: str, schema: pl.Schema, job: JobReference) -> None:
        """On the driver, before the first epoch: check that the destination can be written; refuse with a SinkError."""

    @abstractmethod
    def stage(self, query: str, epoch: int, part: str, attempt: str, frame: pl.DataFrame) -> StagedPart:
        """On an executor: keep rows where `publish` will find them; `attempt` is unique to this try."""

    @abstractmethod
    def publish(self, parts: Sequence[StagedPart]) -> None:
        """On the driver, after the commit was logged: show these parts; must be idempotent."""

    def discard(self, parts: Sequence[StagedPart]) -> None:  # noqa: B027
        """On the driver: these staged parts will never be published."""

    def clean(self, query: str, committed_epoch: int) -> None:  # noqa: B027
        """On the driver, at start: remove what earlier, abandoned attempts staged."""

    def forget(self, query: str, epoch: int) -> None:  # noqa: B027
        """On the driver: no part of this epoch or an earlier one is published again, so the sink need not remember them."""


def refuse_other_job(place: str, owner: JobReference, job: JobReference, remedy: str) -> None:
    """Refuse a job that opens a sink of another job; its output would be taken for what the other job has shown already."""
    if owner.id != job.id:
        raise SinkError(f"{place} belongs to {owner}, but {job} also writes there: {remedy}")
