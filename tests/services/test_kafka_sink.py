"""The Kafka sink against a real broker: an epoch is in the topic once, whoever dies when."""

import itertools
import json
from datetime import datetime

import polars as pl
import pytest

from resurge.connectors.contracts import JobReference
from resurge.connectors.kafka.sink import KafkaSink
from resurge.connectors.kafka.source import kafka
from resurge.errors import SinkError
from resurge.testing.sink_conformance import JOB, QUERY, SCHEMA, check_sink, rows_for
from tests.services.test_kafka_source import read_all
from tests.support import kafka as broker


def opened(topic: str, servers: str, job: JobReference = JOB, **how) -> KafkaSink:
    sink = KafkaSink(topic, servers, **how)
    sink.open(QUERY, SCHEMA, job)
    return sink


def staged(sink: KafkaSink, epoch: int, part: str = "p0", rows: int = 3):
    return sink.stage(QUERY, epoch, part, "attempt", rows_for(epoch, part, rows))


def test_the_sink_keeps_the_laws_of_sinks(kafka_servers, unique):
    """Staging, publishing, repeating, abandoning and crashing show each committed row once."""
    numbers = itertools.count()

    def make() -> KafkaSink:
        return KafkaSink(broker.create(kafka_servers, f"{unique}_{next(numbers)}", 1), kafka_servers)

    def read(sink: KafkaSink) -> pl.DataFrame:
        return pl.DataFrame(broker.objects(kafka_servers, sink.topic), schema=SCHEMA)

    check_sink(make, read, lambda sink: KafkaSink(sink.topic, kafka_servers))


def test_a_driver_that_was_replaced_is_fenced(kafka_servers, unique):
    """It cannot write any more, and says so; what the new driver writes is there once."""
    broker.create(kafka_servers, unique, 1)
    old = opened(unique, kafka_servers)
    old.publish([staged(old, 1)])
    new = opened(unique, kafka_servers)
    with pytest.raises(SinkError, match="another driver has taken over"):
        old.publish([staged(old, 2)])
    new.publish([staged(new, 1), staged(new, 2)])
    assert sorted(row["key"] for row in broker.objects(kafka_servers, unique)) == [
        f"{e}-p0-{n}" for e in (1, 2) for n in range(3)
    ]


def test_a_driver_that_died_in_mid_transaction_leaves_nothing(kafka_servers, unique):
    """Rows without their commit are aborted by the next driver, and published once by it."""
    broker.create(kafka_servers, unique, 1)
    dead = opened(unique, kafka_servers)
    dead._writers[QUERY].producer.begin_transaction()
    dead._writers[QUERY]._produce(staged(dead, 1))
    dead._writers[QUERY].producer.flush()
    new = opened(unique, kafka_servers)
    new.publish([staged(new, 1)])
    assert len(broker.objects(kafka_servers, unique)) == 3
    assert len(broker.everything(kafka_servers, unique, "read_uncommitted")) == 6


def test_rows_come_back_as_they_were_written(kafka_servers, unique):
    """JSON of every type that the source reads, keys included."""
    broker.create(kafka_servers, unique, 3)
    frame = pl.DataFrame(
        {
            "at": [datetime(2024, 1, 2, 3, 4, 5, 678901), datetime(2024, 1, 1), None],
            "who": ['a"\n', "é", None],
            "n": [1, None, 2**60],
            "x": [1.5, None, -0.0],
            "tags": [["a"], [], None],
            "data": [b"\x00\xff", b"", None],
        }
    )
    sink = KafkaSink(unique, kafka_servers, key="who")
    sink.open("q", frame.schema, JOB)
    sink.publish([sink.stage("q", 1, "p", "a", frame)])
    broker.settle(kafka_servers, unique)
    good, bad, _ = read_all(kafka(unique, kafka_servers, {**frame.schema, "kafka_key": pl.Binary}, bad_rows="route"))
    assert not bad.height
    assert good.drop("kafka_key").sort("n").equals(frame.sort("n"))
    assert set(good["kafka_key"]) == {b'a"\n', "é".encode(), None}


def test_raw_records_and_composite_keys(kafka_servers, unique):
    """Values as they are; several key columns are a JSON object."""
    broker.create(kafka_servers, unique, 1)
    raw = KafkaSink(unique, kafka_servers, format="raw")
    frame = pl.DataFrame({"key": [b"k", None], "value": [b"\x00v", None]})
    raw.open("raw", frame.schema, JOB)
    raw.publish([raw.stage("raw", 1, "p", "a", frame)])
    assert broker.everything(kafka_servers, unique) == [(b"k", b"\x00v"), (None, None)]
    both = opened(unique, kafka_servers, key=["key", "count"])
    both.publish([staged(both, 1, rows=1)])
    key, value = broker.everything(kafka_servers, unique)[2]
    assert json.loads(key) == json.loads(value) == {"key": "1-p0-0", "count": 0}


def test_what_is_remembered_does_not_grow(kafka_servers, unique):
    """Parts of forgotten epochs leave the control record, and are still not shown again."""
    broker.create(kafka_servers, unique, 1)
    sink = opened(unique, kafka_servers)
    for epoch in range(1, 6):
        sink.publish([staged(sink, epoch, f"attempt-{epoch}")])
        sink.forget(QUERY, epoch - 1)
    again = opened(unique, kafka_servers)
    assert again._writers[QUERY].published.parts == {"attempt-4": 4, "attempt-5": 5}
    again.publish([staged(again, 1, "attempt-1"), staged(again, 5, "attempt-5"), staged(again, 6, "attempt-6")])
    assert len(broker.objects(kafka_servers, unique)) == 6 * 3


def test_a_topic_that_is_missing_is_refused(kafka_servers, unique):
    """On open, before any epoch runs."""
    with pytest.raises(Exception, match=f"has no topic '{unique}'"):
        opened(unique, kafka_servers)
