"""Offsets of a topic as plain values: where a job starts, how far an epoch goes, what was lost. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from resurge.connectors.contracts import Offset
from resurge.errors import SourceError, TopologyError

EARLIEST = "earliest"
LATEST = "latest"


@dataclass(frozen=True)
class TopicOffsets:
    """A position in every partition of a topic; `topic_id` tells a topic from another of the same name."""

    topic_id: str
    partitions: Mapping[int, int]

    def as_offset(self) -> Offset:
        """As the journal keeps it."""
        return {"topic_id": self.topic_id, "partitions": {str(number): at for number, at in sorted(self.partitions.items())}}

    @staticmethod
    def of(offset: Offset) -> "TopicOffsets":
        """From the journal."""
        return TopicOffsets(offset["topic_id"], {int(number): at for number, at in offset["partitions"].items()})


@dataclass(frozen=True)
class OffsetRange:
    """A split: the offsets of one partition from `start` to before `end`."""

    topic_id: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Start:
    """Where a job begins that has no journal yet: a word, a moment (Unix milliseconds), or an offset per partition."""

    word: str | None = None
    timestamp_ms: int | None = None
    partitions: tuple[tuple[int, int], ...] = ()


def checked_start(start: Any) -> Start:
    """A start as a user says it.

    >>> checked_start("latest")
    Start(word='latest', timestamp_ms=None, partitions=())
    """
    if start in (EARLIEST, LATEST):
        return Start(word=start)
    if isinstance(start, datetime):
        moment = start if start.tzinfo else start.replace(tzinfo=UTC)
        return Start(timestamp_ms=round(moment.timestamp() * 1000))
    if isinstance(start, Mapping) and all(_is_count(number) and _is_count(at) for number, at in start.items()):
        return Start(partitions=tuple(sorted(start.items())))
    raise TopologyError(
        f"start is {start!r}; expected 'earliest', 'latest', a datetime (UTC unless it has a zone), or an offset for each "
        "partition, such as {0: 1200, 1: 1180}"
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def limited(start: TopicOffsets, newest: TopicOffsets, max_rows: int | None) -> TopicOffsets:
    """How far an epoch goes: all there is, or each partition in proportion to what waits there."""
    waiting = {number: max(0, end - start.partitions.get(number, 0)) for number, end in newest.partitions.items()}
    total = sum(waiting.values())
    if max_rows is None or total <= max_rows:
        return TopicOffsets(start.topic_id, {n: start.partitions.get(n, 0) + rows for n, rows in waiting.items()})
    taken = {number: rows * max_rows // total for number, rows in waiting.items()}
    left = max_rows - sum(taken.values())
    # Whole rows are left over by rounding; the largest backlog takes them first.
    for number in sorted(waiting, key=lambda n: (-waiting[n], n)):
        extra = min(left, waiting[number] - taken[number])
        taken[number] += extra
        left -= extra
    return TopicOffsets(start.topic_id, {n: start.partitions.get(n, 0) + rows for n, rows in taken.items()})


def ranges(start: TopicOffsets, end: TopicOffsets) -> Sequence[OffsetRange]:
    """The splits between two positions; a partition that is new begins at its first offset."""
    return [
        OffsetRange(end.topic_id, number, start.partitions.get(number, 0), at)
        for number, at in sorted(end.partitions.items())
        if at > start.partitions.get(number, 0)
    ]


def check_same_topic(topic: str, needed_id: str, found_id: str) -> None:
    """Refuse a topic that was deleted and made again: its offsets mean other rows."""
    if needed_id != found_id:
        raise SourceError(
            f"topic {topic!r} was deleted and made again since this job began (its id was {needed_id}, now it is {found_id}): "
            "what was not read of the old topic is gone. To read the new topic, start a new job with a checkpoint folder of its own"
        )


def check_still_there(topic: str, needed: TopicOffsets, first: Mapping[int, int], newest: Mapping[int, int]) -> None:
    """Refuse to go on where retention has deleted rows that were not read, or where the log is shorter than what was read."""
    for number in sorted(newest):
        at = needed.partitions.get(number, 0)
        if at < first[number]:
            raise lost_rows(topic, number, at, first[number], newest[number])
        if at > newest[number]:
            raise SourceError(
                f"topic {topic!r} partition {number} ends at offset {newest[number]}, but rows up to {at} were read from it: "
                "the broker lost them; a new job with a checkpoint folder of its own can read what is there"
            )
    missing = sorted(set(needed.partitions) - set(newest))
    if missing:
        raise SourceError(f"topic {topic!r} no longer has partition {missing[0]}; expected that partitions are only ever added")


def lost_rows(topic: str, partition: int, needed: int, first: int, newest: int) -> SourceError:
    """Rows were deleted before they were read."""
    return SourceError(
        f"topic {topic!r} partition {partition}: offset {needed} is needed, but the broker has offsets {first} to {newest} only: "
        f"{first - needed} rows were deleted before they were read (retention). Restore them, or accept the loss by starting a "
        "new job with a checkpoint folder of its own, and give the topic a longer retention"
    )
