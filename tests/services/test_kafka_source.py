"""The Kafka source against a real broker."""

import time
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors.contracts import ReadLimit
from resurge.connectors.kafka.source import kafka
from resurge.connectors.reading import latest_offset
from resurge.errors import BadRowError, SourceError
from resurge.operators.aggregates import count as count_rows
from resurge.telemetry.events import LagMeasured
from tests.support import kafka as broker
from tests.support.engines import Bench, finish
from tests.unit.connectors.conftest import Epochs, MemoryLog

SCHEMA = pl.Schema({"at": pl.Datetime("us"), "who": pl.String, "n": pl.Int64})


def rows(count: int, first: int = 0) -> list[dict[str, object]]:
    start = datetime(2024, 1, 1)
    return [
        {"at": (start + timedelta(seconds=n)).isoformat(), "who": f"user{n % 7}", "n": n, "more": True}
        for n in range(first, first + count)
    ]


def read_all(source, **how):
    found = list(Epochs().run(source.reader(MemoryLog()), source.schema(), **how))
    good = pl.concat([pl.DataFrame(schema=source.schema()), *(good for good, _, _ in found)])
    return good, pl.concat([bad for _, bad, _ in found]) if found else pl.DataFrame(), [end for _, _, end in found]


def test_json_rows_are_read_by_schema_from_all_partitions(kafka_servers, unique):
    """Typed columns, fields that are not in the schema ignored, and what comes from the record itself."""
    broker.create(kafka_servers, unique)
    broker.send(kafka_servers, unique, rows(1000))
    schema = pl.Schema({**SCHEMA, "kafka_partition": pl.Int32, "kafka_offset": pl.Int64, "kafka_key": pl.Binary})
    good, bad, ends = read_all(kafka(unique, kafka_servers, schema))
    assert not bad.height
    assert [end["partitions"] for end in ends] == [{"0": 500, "1": 500}]
    assert sorted(good["n"]) == list(range(1000))
    assert good.sort("n")["at"][61] == datetime(2024, 1, 1, 0, 1, 1)
    assert good.filter(pl.col("kafka_partition") == 1)["kafka_offset"].to_list() == list(range(500))
    assert good.filter(pl.col("n") == 17)["kafka_key"].to_list() == [b"17"]


def test_raw_records_need_no_schema(kafka_servers, unique):
    """Key, value, partition, offset and timestamp as they are; a tombstone has no value."""
    broker.create(kafka_servers, unique, 1)
    before = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=1)
    broker.send(kafka_servers, unique, [b"\x00\xff", None], partitions=[0])
    good, _, _ = read_all(kafka(unique, kafka_servers))
    assert good.select("key", "value", "partition", "offset").rows() == [(b"0", b"\x00\xff", 0, 0), (b"1", None, 0, 1)]
    assert before < good["timestamp"][0] < before + timedelta(minutes=10)


def test_epochs_are_cut_at_the_limit_and_can_be_read_again(kafka_servers, unique):
    """The same offsets give the same rows, whatever was read in between."""
    broker.create(kafka_servers, unique)
    broker.send(kafka_servers, unique, rows(1000))
    source = kafka(unique, kafka_servers, SCHEMA, max_rows_per_epoch=300)
    reader, log = source.reader(MemoryLog()), Epochs()
    found = list(log.run(reader, SCHEMA))
    assert [good.height for good, _, _ in found] == [300, 300, 300, 100]
    starts = [reader.initialOffset(), *(end for _, _, end in found)]
    for index in (2, 0, 3, 1):
        again, _ = log.read(reader, SCHEMA, starts[index], starts[index + 1])
        assert again.equals(found[index][0]), f"epoch {index} read again"
    assert latest_offset(reader, starts[1], ReadLimit(50))["partitions"] == {"0": 175, "1": 175}
    assert reader.rows_between(starts[1], reader.newest_offset(starts[1])) == 700
    assert reader.lag_by_partition(starts[1], reader.newest_offset(starts[1])) == {"0": 350, "1": 350}


@pytest.mark.parametrize("where", ["earliest", "latest", "moment", "explicit", "future"])
def test_a_new_job_starts_where_it_is_told(kafka_servers, unique, where):
    """Earliest, latest, a moment, an offset per partition; "latest" stays the same moment after a crash."""
    broker.create(kafka_servers, unique)
    broker.send(kafka_servers, unique, rows(100))
    time.sleep(0.05)
    moment = datetime.now(UTC)
    time.sleep(0.05)
    broker.send(kafka_servers, unique, rows(100, 100))
    starts = {"moment": moment, "explicit": {0: 90, 1: 100}, "future": moment + timedelta(days=1)}
    source, log = kafka(unique, kafka_servers, SCHEMA, start=starts.get(where, where)), MemoryLog()
    first = source.reader(log).initialOffset()["partitions"]
    wanted = {"earliest": [0, 0], "moment": [50, 50], "explicit": [90, 100]}.get(where, [100, 100])
    assert [first["0"], first["1"]] == wanted
    broker.send(kafka_servers, unique, rows(10, 200))
    assert source.reader(log).initialOffset()["partitions"] == first


def test_start_must_name_every_partition(kafka_servers, unique):
    """An explicit start with a partition too few would skip it silently."""
    broker.create(kafka_servers, unique)
    with pytest.raises(SourceError, match=r"has the partitions \[0, 1\], but start names \[0\]"):
        kafka(unique, kafka_servers, SCHEMA, start={0: 3}).reader(MemoryLog()).initialOffset()


def test_new_partitions_are_noticed(kafka_servers, unique):
    """A partition that was added is read from its first row."""
    broker.create(kafka_servers, unique, 1)
    broker.send(kafka_servers, unique, rows(10), partitions=[0])
    source = kafka(unique, kafka_servers, SCHEMA)
    reader = source.reader(MemoryLog())
    start = latest_offset(reader, reader.initialOffset(), ReadLimit())
    broker.grow(kafka_servers, unique, 3)
    broker.send(kafka_servers, unique, rows(30, 10), partitions=[0, 1, 2])
    end = latest_offset(reader, start, ReadLimit())
    assert end["partitions"] == {"0": 20, "1": 10, "2": 10}
    good, _ = Epochs().read(reader, SCHEMA, start, end)
    assert sorted(good["n"]) == list(range(10, 40))


def test_only_committed_transactions_are_read(kafka_servers, unique):
    """Rows of an aborted transaction are never seen, and markers at the end of a range do not hold an epoch up."""
    broker.create(kafka_servers, unique, 1)
    broker.send(kafka_servers, unique, rows(5), partitions=[0], **{"transactional.id": unique})
    broker.abort(kafka_servers, unique, rows(5, 100), unique)
    broker.send(kafka_servers, unique, rows(5, 5), partitions=[0], **{"transactional.id": unique})
    broker.settle(kafka_servers, unique)
    good, _, ends = read_all(kafka(unique, kafka_servers, SCHEMA, max_rows_per_epoch=3))
    assert good["n"].to_list() == list(range(10))
    assert ends[-1]["partitions"] == {"0": 18}, "ten rows, five aborted ones, three markers"


def test_bad_rows_fail_or_are_set_aside(kafka_servers, unique):
    """Every kind of bad value is named with its partition and offset; the good rows beside it stay."""
    broker.create(kafka_servers, unique, 1)
    bad = [b"{", b"[1]", None, b'{"n": "x"}', b'{"at": "yesterday"}', b"\xff"]
    broker.send(kafka_servers, unique, [*rows(3), *bad, *rows(3, 3)], partitions=[0])
    good, refused, _ = read_all(kafka(unique, kafka_servers, SCHEMA, bad_rows="route"))
    assert good["n"].to_list() == list(range(6))
    assert refused["location"].to_list() == [f"{unique}:0:{offset}" for offset in range(3, 9)]
    assert refused["row"][3] == '{"n": "x"}'
    with pytest.raises(BadRowError, match=f"{unique}:0:3"):
        read_all(kafka(unique, kafka_servers, SCHEMA))


def test_rows_that_retention_deleted_are_never_skipped_silently(kafka_servers, unique):
    """The error names the partition, the offset that is needed and those that are there."""
    broker.create(kafka_servers, unique, 1)
    broker.send(kafka_servers, unique, rows(100), partitions=[0])
    reader = kafka(unique, kafka_servers, SCHEMA, max_rows_per_epoch=10).reader(MemoryLog())
    start = reader.initialOffset()
    end = latest_offset(reader, start, ReadLimit())
    broker.delete_before(kafka_servers, unique, 0, 40)
    wanted = r"partition 0: offset 0 is needed, but the broker has offsets 40 to 100 only: 40 rows were deleted"
    with pytest.raises(SourceError, match=wanted):
        Epochs().read(reader, SCHEMA, start, end)
    with pytest.raises(SourceError, match=wanted):
        latest_offset(reader, start, ReadLimit())


def test_a_topic_that_was_made_again_is_refused(kafka_servers, unique):
    """The same offsets of another topic of the same name are other rows."""
    broker.create(kafka_servers, unique, 1)
    broker.send(kafka_servers, unique, rows(10), partitions=[0])
    reader = kafka(unique, kafka_servers, SCHEMA, max_rows_per_epoch=5).reader(MemoryLog())
    start = reader.initialOffset()
    end = latest_offset(reader, start, ReadLimit())
    broker.delete(kafka_servers, unique)
    with pytest.raises(SourceError, match=f"has no topic '{unique}'"):
        latest_offset(reader, end, ReadLimit())
    for _ in range(50):  # a deleted topic's name is free a moment later
        try:
            broker.create(kafka_servers, unique, 1)
            break
        except Exception:
            time.sleep(0.1)
    broker.send(kafka_servers, unique, rows(10, 50), partitions=[0])
    with pytest.raises(SourceError, match="was deleted and made again"):
        latest_offset(reader, end, ReadLimit())
    with pytest.raises(SourceError, match="was deleted and made again"):
        Epochs().read(reader, SCHEMA, start, end)


def test_a_broker_that_stays_away_is_told_of():
    """Patience ends with what to do, not with a hang."""
    source = kafka("anything", "127.0.0.1:1", SCHEMA, retry_timeout_s=1)
    with pytest.raises(
        SourceError, match=r"Kafka at 127.0.0.1:1 could not describe topic 'anything'.*run the same command again"
    ):
        source.reader(MemoryLog()).initialOffset()


def test_lag_of_every_partition_is_told_while_a_job_runs(kafka_servers, unique, tmp_path):
    """At first what waits, in the end that nothing does; also of a partition that has nothing."""
    broker.create(kafka_servers, unique, 3)
    for partition, count in ((0, 40), (1, 20)):
        broker.send(kafka_servers, unique, rows(count), (partition,))
    job, bench = TopologyBuilder("lag", key_groups=2), Bench(tmp_path)
    stream = job.source("orders", kafka(unique, kafka_servers, SCHEMA, max_rows_per_epoch=15), event_time="at")
    stream.aggregate("totals", key="who", n=count_rows()).query("totals", sink=bench.sink)
    finish(bench.engine(job.build(), back_pressure=False), drain=False)
    told = [event.sources["orders"] for event in bench.events if isinstance(event, LagMeasured)]
    assert told[0] == {"0": 30, "1": 15, "2": 0}
    assert told[-1] == {"0": 0, "1": 0, "2": 0}
