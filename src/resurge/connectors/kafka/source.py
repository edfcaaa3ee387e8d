"""A Kafka topic as a source: offsets are kept in the job's journal, and partitions are read where tasks run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import polars as pl

from resurge.connectors.contracts import BadRowPolicy, Offset, ReadLimit, Source, SourceLog, SourceReader
from resurge.connectors.extras import client_library
from resurge.connectors.frames import bad_frame, refuse_bad_rows
from resurge.connectors.kafka.client import KafkaCluster
from resurge.connectors.kafka.consuming import Topic, admin_client, ask_of_topic, describe, read_messages
from resurge.connectors.kafka.decoding import RAW_SCHEMA, check_json_schema, json_frame, raw_frame
from resurge.connectors.kafka.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Start,
    TopicOffsets,
    check_same_topic,
    check_still_there,
    checked_start,
    limited,
    ranges,
)
from resurge.errors import SourceError, TopologyError


@dataclass(frozen=True)
class KafkaSource(Source):
    """A topic; `kafka` makes one."""

    topic: Topic
    columns: pl.Schema
    is_json: bool
    start: Start
    max_rows_per_epoch: int | None = None
    bad_rows: BadRowPolicy = "fail"

    def with_bad_rows(self, policy: BadRowPolicy) -> "KafkaSource":
        return replace(self, bad_rows=policy)

    def schema(self) -> pl.Schema:
        return self.columns

    def reader(self, log: SourceLog) -> "KafkaReader":
        return KafkaReader(self, log)

    def signature(self) -> str:
        return f"{self.topic.name} {super().signature()}"


def kafka(
    topic: str,
    servers: str,
    schema: pl.Schema | Mapping[str, Any] | None = None,
    *,
    start: Any = EARLIEST,
    max_rows_per_epoch: int | None = None,
    bad_rows: BadRowPolicy = "fail",
    client: Mapping[str, Any] | None = None,
    retry_timeout_s: float = 120.0,
) -> KafkaSource:
    """A topic of JSON objects with these columns, or without a schema its raw records: key, value, partition, offset, timestamp.

    A JSON schema may have kafka_key, kafka_partition, kafka_offset and kafka_timestamp, which are taken from the record.
    `start` counts for a new job only: "earliest", "latest", a datetime, or an offset for each partition.
    `client` has further settings of librdkafka, such as security.protocol. Only committed transactions are read.
    """
    cluster = KafkaCluster.of(servers, client, retry_timeout_s, f"source kafka({topic!r})")
    if bad_rows not in ("fail", "route"):
        raise TopologyError(f"bad_rows of topic {topic!r} is {bad_rows!r}; expected 'fail' or 'route'")
    if max_rows_per_epoch is not None and (not isinstance(max_rows_per_epoch, int) or max_rows_per_epoch < 1):
        raise TopologyError(f"max_rows_per_epoch of topic {topic!r} is {max_rows_per_epoch!r}; expected at least 1")
    columns = RAW_SCHEMA if schema is None else pl.Schema(schema)
    if schema is not None:
        check_json_schema(topic, columns)
    isolation = str(dict(cluster.settings).get("isolation.level", "read_committed"))
    return KafkaSource(
        Topic(cluster, topic, isolation), columns, schema is not None, checked_start(start), max_rows_per_epoch, bad_rows
    )


class KafkaReader(SourceReader):
    """Offset {"topic_id": id, "partitions": {"0": next offset, ...}}.

    A commit needs nothing: the offsets are the journal's, and no consumer group exists.
    """

    def __init__(self, source: KafkaSource, log: SourceLog) -> None:
        self.source = source
        self.topic = source.topic
        self.name = f"kafka({source.topic.name!r})"
        self._log: SourceLog | None = log
        self._newest: TopicOffsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_log": None, "_newest": None}

    def initialOffset(self) -> Offset:
        """Where the job begins; decided once and kept, so that "latest" is the same moment after a crash."""
        if self._log is None:
            raise SourceError(f"{self.name} was asked on an executor where it begins; only the driver may ask")
        if not self._log.numbers():
            self._log.create(0, msgspec.json.encode(self._resolved_start().as_offset()))
        offset: Offset = msgspec.json.decode(self._log.read(0))
        return offset

    def latest_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        """What has arrived, within the limits. New partitions are found here; what is gone or exchanged is refused here."""
        needed = TopicOffsets.of(start)
        found = describe(self.topic)
        check_same_topic(self.topic.name, needed.topic_id, str(found.topic_id))
        numbers = [partition.id for partition in found.partitions]
        newest = self._offsets(numbers, LATEST)
        check_still_there(self.topic.name, needed, self._offsets(numbers, EARLIEST), newest)
        self._newest = TopicOffsets(needed.topic_id, newest)
        bounds = [bound for bound in (limit.max_rows, self.source.max_rows_per_epoch) if bound is not None]
        return limited(needed, self._newest, min(bounds, default=None)).as_offset()

    def newest_offset(self, start: Offset) -> Offset:
        """All there was when the last epoch was planned."""
        return start if self._newest is None else self._newest.as_offset()

    def rows_between(self, start: Offset, end: Offset) -> int:
        """By offsets: markers of transactions, and rows that compaction removed, count too."""
        return sum(self.lag_by_partition(start, end).values())

    def lag_by_partition(self, start: Offset, end: Offset) -> dict[str, int]:
        """Rows between two offsets, for each partition."""
        first, last = TopicOffsets.of(start).partitions, TopicOffsets.of(end).partitions
        return {str(number): max(0, at - first.get(number, 0)) for number, at in sorted(last.items())}

    def partitions(self, start: Offset, end: Offset) -> Sequence[OffsetRange]:
        return ranges(TopicOffsets.of(start), TopicOffsets.of(end))

    def read_frames(self, partition: OffsetRange) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The good and the bad rows of one range of offsets."""
        messages = read_messages(self.topic, partition)
        if not self.source.is_json:
            return raw_frame(messages), bad_frame([])
        good, bad = json_frame(self.topic.name, messages, self.source.columns)
        refused = bad_frame(bad)
        if self.source.bad_rows == "fail":
            refuse_bad_rows(refused)
        return good, refused

    def _resolved_start(self) -> TopicOffsets:
        start, found = self.source.start, describe(self.topic)
        numbers = [partition.id for partition in found.partitions]
        if start.partitions:
            chosen = dict(start.partitions)
            if set(chosen) != set(numbers):
                raise SourceError(
                    f"topic {self.topic.name!r} has the partitions {numbers}, but start names {sorted(chosen)}; "
                    "expected an offset for each"
                )
        else:
            chosen = self._offsets(numbers, start.word or start.timestamp_ms)
        # A moment after the newest row is the end.
        ends = self._offsets(numbers, LATEST)
        return TopicOffsets(str(found.topic_id), {number: at if at >= 0 else ends[number] for number, at in chosen.items()})

    def _offsets(self, numbers: Sequence[int], where: str | int | None) -> dict[int, int]:
        """The first or last offset of each partition, or the first at or after a moment."""
        library = client_library("confluent_kafka", "kafka", "Kafka")
        admin = client_library("confluent_kafka.admin", "kafka", "Kafka")
        if isinstance(where, int):
            spec = admin.OffsetSpec.for_timestamp(where)
        else:
            spec = admin.OffsetSpec.earliest() if where == EARLIEST else admin.OffsetSpec.latest()
        committed = self.topic.isolation == "read_committed"
        isolation = library.IsolationLevel.READ_COMMITTED if committed else library.IsolationLevel.READ_UNCOMMITTED

        def ask() -> dict[int, int]:
            asked = {library.TopicPartition(self.topic.name, number): spec for number in numbers}
            answers = admin_client(self.topic.cluster).list_offsets(
                asked, isolation_level=isolation, request_timeout=self.topic.cluster.request_timeout_s
            )
            return {where.partition: answer.result().offset for where, answer in answers.items()}

        return ask_of_topic(self.topic, "tell the offsets of", ask)
