"""The control topic of an output topic: a compacted record per job and query says what was published, in the same transaction."""

import time
from typing import Any

from resurge.connectors.extras import client_library
from resurge.connectors.kafka.client import KafkaCluster, patiently
from resurge.connectors.kafka.consuming import Topic, admin_client, describe
from resurge.connectors.published import PublishedParts
from resurge.errors import SinkError

_SETTINGS = {
    "group.id": "resurge",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 50,
}


def ensure_control_topic(cluster: KafkaCluster, name: str) -> None:
    """Make the control topic unless it is there."""
    admin = client_library("confluent_kafka.admin", "kafka", "Kafka")
    library = client_library("confluent_kafka", "kafka", "Kafka")

    def create() -> None:
        # A replication factor of -1 is the broker's default.
        wanted = admin.NewTopic(name, num_partitions=1, replication_factor=-1, config={"cleanup.policy": "compact"})
        try:
            admin_client(cluster).create_topics([wanted], request_timeout=cluster.request_timeout_s)[name].result()
        except library.KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
        describe(Topic(cluster, name), SinkError)

    patiently(cluster, f"create the control topic {name!r}", SinkError, create)


def read_published(cluster: KafkaCluster, name: str, key: bytes) -> PublishedParts:
    """The newest committed record of a key.

    Another job's open transaction hides all that comes after it, so this waits until everything that was there is visible.
    """
    library = client_library("confluent_kafka", "kafka", "Kafka")
    consumer = cluster.client("Consumer", **_SETTINGS)
    try:
        where = library.TopicPartition(name, 0, 0)
        asked = lambda: consumer.get_watermark_offsets(where, cluster.request_timeout_s)  # noqa: E731
        first, newest = patiently(cluster, f"tell the end of {name!r}", SinkError, asked)
        if first == newest:
            return PublishedParts()
        consumer.assign([library.TopicPartition(name, 0, first)])
        return PublishedParts.decode(_newest_value(consumer, cluster, name, key, newest))
    finally:
        consumer.close()


def _newest_value(consumer: Any, cluster: KafkaCluster, name: str, key: bytes, newest: int) -> bytes | None:
    found: bytes | None = None
    deadline = time.monotonic() + cluster.retry_timeout_s
    while time.monotonic() < deadline:
        for message in consumer.consume(10_000, 0.05):
            error = message.error()
            if error is None:
                found = message.value() if message.key() == key else found
            if (error is None or error.name() == "_PARTITION_EOF") and message.offset() + (error is None) >= newest:
                return found
    raise SinkError(
        f"Kafka at {cluster.servers} did not show the control topic {name!r} up to offset {newest} within "
        f"{cluster.retry_timeout_s:.0f} s: it is away, or another writer has left a transaction open; run the same command again later"
    )
