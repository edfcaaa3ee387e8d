"""A Kafka topic as a sink: an epoch's rows and the note of what was published are one transaction."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import polars as pl

from resurge.connectors.contracts import JobReference, Sink, StagedPart
from resurge.connectors.kafka.client import RETRY_PAUSE_S, KafkaCluster, is_passing, patiently
from resurge.connectors.kafka.consuming import Topic, describe
from resurge.connectors.kafka.control import ensure_control_topic, read_published
from resurge.connectors.kafka.encoding import check_columns, encoded, records
from resurge.connectors.published import in_transactions
from resurge.errors import SinkError

MAX_ROWS_PER_TRANSACTION = 500_000
ROWS_BETWEEN_POLLS = 20_000
_SETTINGS = {
    "linger.ms": 20,
    "compression.type": "lz4",
    "batch.size": 1 << 20,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 1_000_000,
    # Keys go to the partitions that Java clients choose.
    "partitioner": "murmur2_random",
}


class KafkaSink(Sink):
    """Writes every row as a JSON object (or, raw, the columns `key` and `value`); readers with read_committed see each epoch once.

    What was published is noted in a compacted topic of its own, `<topic>.resurge` unless another is named, in the transaction
    that writes the rows. Producers are fenced by the job's and the query's name: a driver that was replaced cannot commit.
    """

    def __init__(
        self,
        topic: str,
        servers: str,
        key: str | Sequence[str] = (),
        *,
        format: Literal["json", "raw"] = "json",
        control_topic: str | None = None,
        client: Mapping[str, Any] | None = None,
        retry_timeout_s: float = 120.0,
    ) -> None:
        self.cluster = KafkaCluster.of(servers, client, retry_timeout_s, f"KafkaSink({topic!r})")
        self.topic = topic
        self.is_raw = format == "raw"
        self.key = (key,) if isinstance(key, str) else tuple(key)
        if self.is_raw:
            self.key = self.key or ("key",)
        self.control_topic = control_topic or f"{topic}.resurge"
        self._writers: dict[str, _Writer] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Executors only stage: producers stay on the driver."""
        return {**self.__dict__, "_writers": {}}

    def open(self, query: str, schema: pl.Schema, job: JobReference) -> None:
        if self.is_raw and self.key == ("key",) and "key" not in schema:
            self.key = ()
        check_columns(self.topic, schema, self.key, raw=self.is_raw)
        describe(Topic(self.cluster, self.topic), SinkError)
        ensure_control_topic(self.cluster, self.control_topic)
        self._writers[query] = _Writer(self.cluster, self.topic, self.control_topic, f"resurge.{job.id}.{query}")

    def stage(self, query: str, epoch: int, part: str, attempt: str, frame: pl.DataFrame) -> StagedPart:
        return StagedPart(query, int(epoch), part, frame.height, payload=encoded(frame, self.key, raw=self.is_raw))

    def publish(self, parts: Sequence[StagedPart]) -> None:
        for query in dict.fromkeys(part.query for part in parts):
            self._writers[query].publish([part for part in parts if part.query == query])

    def forget(self, query: str, epoch: int) -> None:
        self._writers[query].forget(epoch)


class _Writer:
    """One query's transactional producer."""

    def __init__(self, cluster: KafkaCluster, topic: str, control_topic: str, name: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.control_topic = control_topic
        self.name = name
        self.record_key = f"{name}.{topic}".encode()
        self.forgotten = -1
        self._begin()

    def _begin(self) -> None:
        """Fence older drivers, end their transactions, then read what they published."""
        self.producer = self.cluster.client("Producer", **_SETTINGS, **{"transactional.id": self.name})
        wait_s = self.cluster.request_timeout_s
        patiently(self.cluster, "begin transactions", SinkError, lambda: self.producer.init_transactions(wait_s))
        self.published = read_published(self.cluster, self.control_topic, self.record_key)

    def forget(self, epoch: int) -> None:
        self.forgotten = epoch

    def publish(self, parts: Sequence[StagedPart]) -> None:
        for some in in_transactions(self.published.unseen(parts), MAX_ROWS_PER_TRANSACTION):
            self._publish_patiently(some)

    def _publish_patiently(self, parts: Sequence[StagedPart]) -> None:
        """Try again after what passes, each time from what the broker says is published."""
        deadline = time.monotonic() + self.cluster.retry_timeout_s
        while new := self.published.unseen(parts):
            try:
                self._write(new)
                return
            except Exception as error:
                self._refuse_to_go_on(error, late=time.monotonic() > deadline)
            time.sleep(RETRY_PAUSE_S)
            self._begin()

    def _write(self, parts: Sequence[StagedPart]) -> None:
        after = self.published.after(parts).forget(self.forgotten)
        self.producer.begin_transaction()
        for part in parts:
            self._produce(part)
        self.producer.produce(self.control_topic, after.encode(), key=self.record_key, partition=0)
        self.producer.commit_transaction(self.cluster.retry_timeout_s)
        self.published = after

    def _produce(self, part: StagedPart) -> None:
        if part.payload is None:
            raise SinkError(f"part {part.identity} came without its rows; expected them in the payload, as `stage` returned them")
        produce, poll, topic = self.producer.produce, self.producer.poll, self.topic
        keys, values = records(part.payload)
        for first in range(0, len(values), ROWS_BETWEEN_POLLS):
            last = first + ROWS_BETWEEN_POLLS
            for key, value in zip(keys[first:last], values[first:last], strict=True):
                try:
                    produce(topic, value, key)
                except BufferError:
                    poll(1.0)
                    produce(topic, value, key)
            poll(0)

    def _refuse_to_go_on(self, error: Exception, *, late: bool) -> None:
        """Raise what trying again does not mend."""
        if isinstance(error, SinkError):
            raise error
        code: Any = error.args[0] if error.args else None
        name = code.name() if hasattr(code, "name") else type(error).__name__
        if name in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"):
            raise SinkError(
                f"another driver has taken over {self.name!r} at Kafka {self.cluster.servers}; this one must stop: "
                "nothing of the current epoch was written by it"
            ) from error
        can_retry = is_passing(error) or getattr(code, "txn_requires_abort", bool)() or isinstance(error, BufferError)
        if late or not can_retry:
            raise SinkError(
                f"Kafka at {self.cluster.servers} could not write to topic {self.topic!r}: {code}; the epoch is logged and will "
                "be published when the job runs again"
            ) from error
