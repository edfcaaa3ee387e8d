"""Topics of the real broker: make, fill, read, delete."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec


def create(servers: str, topic: str, partitions: int = 2, **config: str) -> str:
    """A new topic."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result()
    return topic


def delete(servers: str, topic: str) -> None:
    """Delete a topic."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result()


def grow(servers: str, topic: str, partitions: int) -> None:
    """More partitions."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()


def delete_before(servers: str, topic: str, partition: int, offset: int) -> None:
    """Do what retention does."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
        future.result()


def send(servers: str, topic: str, values: Iterable[Any], partitions: Sequence[int] = (0, 1), **config: Any) -> None:
    """Write values round robin: bytes as they are, anything else as JSON."""
    # A batch that is sent again must not come after later ones: rows would be late.
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "enable.idempotence": True, **config})
    transactional = "transactional.id" in config
    if transactional:
        producer.init_transactions()
        producer.begin_transaction()
    for index, value in enumerate(values):
        content = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
        producer.produce(topic, content, key=str(index).encode(), partition=partitions[index % len(partitions)])
        if index % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    if transactional:
        producer.commit_transaction()


def abort(servers: str, topic: str, values: Iterable[Any], transactional_id: str) -> None:
    """Write values in a transaction that is given up."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, json.dumps(value).encode(), partition=0)
    producer.flush()
    producer.abort_transaction()


def settle(servers: str, topic: str, limit_s: float = 20.0) -> None:
    """Wait until what was committed can be read: a broker confirms a commit before it has written the marker to every partition."""
    admin = AdminClient({"bootstrap.servers": servers})
    partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}

    def ends(isolation: IsolationLevel) -> list[int]:
        answers = admin.list_offsets(asked, isolation_level=isolation)
        return [answers[where].result().offset for where in asked]

    last = time.monotonic() + limit_s
    while ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED):
        assert time.monotonic() < last, f"topic {topic} has an open transaction"
        time.sleep(0.02)


def everything(servers: str, topic: str, isolation: str = "read_committed") -> list[tuple[bytes | None, bytes | None]]:
    """(key, value) of every record of a topic, by partition and offset: the broker's own view."""
    settle(servers, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    found = []
    for partition in sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions):
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(30)
            assert message is not None, f"no answer from partition {partition}"
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error().str()
                break
            found.append((message.key(), message.value()))
    consumer.close()
    return found


def objects(servers: str, topic: str) -> list[Mapping[str, Any]]:
    """The JSON objects of a topic."""
    return [json.loads(value) for _, value in everything(servers, topic) if value is not None]
