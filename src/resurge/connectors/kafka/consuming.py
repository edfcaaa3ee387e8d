"""Read one range of offsets of one partition, where a task runs. Consumers are kept open between epochs."""

import threading
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any

from resurge.connectors.extras import client_library
from resurge.connectors.kafka.client import REQUEST_TIMEOUT_S, KafkaCluster, Made, is_passing, patiently
from resurge.connectors.kafka.offsets import OffsetRange, check_same_topic, lost_rows
from resurge.errors import ResurgeError, SourceError

MOST_OPEN_PARTITIONS = 16
NEW_TOPIC_S = 3.0
MESSAGES_PER_CALL = 20_000
# A call waits so long for all the messages it asked for: where markers stand among them, they never come.
WAIT_S = 0.05
_ERROR, _OFFSET = methodcaller("error"), methodcaller("offset")
_SETTINGS = {
    "group.id": "resurge",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # The journal says where to read: a missing offset is an error, never a jump.
    "auto.offset.reset": "error",
    # Behind the last row of a transaction stands a marker that is never delivered: the end must be told.
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 50,
    "fetch.message.max.bytes": 4 << 20,
    "queued.max.messages.kbytes": 32 << 10,
}


@dataclass(frozen=True)
class Topic:
    """A topic of a cluster, as it is to be read."""

    cluster: KafkaCluster
    name: str
    isolation: str = "read_committed"


@dataclass
class OpenPartition:
    """A consumer that stands at an offset of one partition, with what it has fetched beyond the last epoch."""

    consumer: Any
    position: int
    ahead: list[Any] = field(default_factory=list)
    end: int = -1
    """Up to here everything was delivered, as the broker has told."""


class _OpenPartitions:
    """The consumers of this process that no task uses now; the longest unused is closed when there are too many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: OrderedDict[tuple[Topic, str, int], OpenPartition] = OrderedDict()

    def take(self, topic: Topic, split: OffsetRange) -> OpenPartition:
        with self._lock:
            kept = self._idle.pop((topic, split.topic_id, split.partition), None)
        if kept is None:
            kept = OpenPartition(topic.cluster.client("Consumer", **_SETTINGS, **{"isolation.level": topic.isolation}), -1)
        if kept.position != split.start:
            library = client_library("confluent_kafka", "kafka", "Kafka")
            kept.consumer.assign([library.TopicPartition(topic.name, split.partition, split.start)])
            kept.ahead, kept.position, kept.end = [], split.start, -1
        return kept

    def give_back(self, topic: Topic, split: OffsetRange, used: OpenPartition) -> None:
        with self._lock:
            self._idle[topic, split.topic_id, split.partition] = used
            surplus = [self._idle.popitem(last=False)[1] for _ in range(len(self._idle) - MOST_OPEN_PARTITIONS)]
        for closed in surplus:
            closed.consumer.close()


_open_partitions = _OpenPartitions()


def read_messages(topic: Topic, split: OffsetRange) -> list[Any]:
    """The messages of a range of offsets, in order."""
    used = _open_partitions.take(topic, split)
    try:
        messages = _read(topic, split, used)
    except BaseException:
        used.consumer.close()
        raise
    check_same_topic(topic.name, split.topic_id, topic_id(topic))
    _open_partitions.give_back(topic, split, used)
    return messages


def _read(topic: Topic, split: OffsetRange, used: OpenPartition) -> list[Any]:
    found: list[Any] = []
    batch, used.ahead = used.ahead, []
    deadline = time.monotonic() + topic.cluster.retry_timeout_s
    while not _take(topic, split, used, batch, found):
        batch = used.consumer.consume(min(MESSAGES_PER_CALL, split.end - used.position), WAIT_S)
        if batch:
            deadline = time.monotonic() + topic.cluster.retry_timeout_s
        elif time.monotonic() > deadline:
            raise SourceError(
                f"Kafka at {topic.cluster.servers} gave nothing of topic {topic.name!r} partition {split.partition} from offset "
                f"{used.position} for {topic.cluster.retry_timeout_s:.0f} s, though it has rows up to {split.end}; the epoch was not "
                "committed: when the broker is back, run the same command again"
            )
    used.position = split.end
    return found


def _take(topic: Topic, split: OffsetRange, used: OpenPartition, batch: list[Any], found: list[Any]) -> bool:
    """Add the messages of a batch that belong to the split; True when the split is complete."""
    if any(map(_ERROR, batch)):
        for message in batch:
            if message.error() is not None:
                _check_error(topic, split, used, message)
        batch = [message for message in batch if message.error() is None]
    cut = bisect_left(batch, split.end, key=_OFFSET)
    found.extend(batch[:cut])
    used.ahead = batch[cut:]
    used.position = batch[cut - 1].offset() + 1 if cut else used.position
    return max(used.position, used.end) >= split.end or cut < len(batch)


def _check_error(topic: Topic, split: OffsetRange, used: OpenPartition, message: Any) -> None:
    """Note the end of the partition; raise, unless the error is one after which the client goes on by itself."""
    error = message.error()
    if error.name() == "_PARTITION_EOF":
        used.end = message.offset()
        return
    if is_passing(error):
        return
    if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
        library = client_library("confluent_kafka", "kafka", "Kafka")
        where = library.TopicPartition(topic.name, split.partition)
        first, newest = used.consumer.get_watermark_offsets(where, REQUEST_TIMEOUT_S)
        raise lost_rows(topic.name, split.partition, used.position, first, newest)
    raise SourceError(
        f"topic {topic.name!r} partition {split.partition} could not be read at offset {used.position}: {error.str()}; "
        "the epoch was not committed: fix the cause and run the same command again"
    )


_admins: dict[KafkaCluster, Any] = {}


def admin_client(cluster: KafkaCluster) -> Any:
    """This process's client for questions about topics."""
    if cluster not in _admins:
        _admins[cluster] = cluster.client("AdminClient")
    return _admins[cluster]


def describe(topic: Topic, failure: type[ResurgeError] = SourceError) -> Any:
    """What the brokers say of a topic now."""

    def ask() -> Any:
        library = client_library("confluent_kafka", "kafka", "Kafka")
        wanted = library.TopicCollection([topic.name])
        asked = admin_client(topic.cluster).describe_topics(wanted, request_timeout=topic.cluster.request_timeout_s)
        return asked[topic.name].result()

    return ask_of_topic(topic, "describe", ask, failure)


def ask_of_topic(topic: Topic, action: str, ask: Callable[[], Made], failure: type[ResurgeError] = SourceError) -> Made:
    """The answer to a question about a topic; one that was made a moment ago may not be known at once."""
    library = client_library("confluent_kafka", "kafka", "Kafka")

    def answer() -> list[Made]:
        try:
            return [ask()]
        except library.KafkaException as error:
            if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                raise
            return []

    deadline = time.monotonic() + min(NEW_TOPIC_S, topic.cluster.retry_timeout_s)
    while not (found := patiently(topic.cluster, f"{action} topic {topic.name!r}", failure, answer)):
        if time.monotonic() > deadline:
            raise failure(
                f"Kafka at {topic.cluster.servers} has no topic {topic.name!r}; expected one: create it, or correct the name. "
                "If it was deleted, what was not read of it is gone"
            )
        time.sleep(WAIT_S)
    return found[0]


def topic_id(topic: Topic) -> str:
    """The id of a topic: another one if it was deleted and made again."""
    return str(describe(topic).topic_id)
