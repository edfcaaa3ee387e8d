"""Any reader that follows PySpark's contract is called rightly, and what it does wrong is named."""

from datetime import UTC, datetime

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, ReadMaxRows

from resurge.connectors.contracts import ReadLimit
from resurge.connectors.python_source import PythonSource
from resurge.connectors.reading import latest_offset, read_split
from resurge.errors import BadRowError, SourceError, TopologyError

SCHEMA = pl.Schema({"id": pl.Int64, "name": pl.String})


class Counting(DataSourceStreamReader):
    """Ten rows, in splits of three; `latestOffset` as since PySpark 4.2."""

    def __init__(self, default=None):
        self.default = default or ReadAllAvailable()

    def initialOffset(self):
        return {"index": 0}

    def getDefaultReadLimit(self):
        return self.default

    def latestOffset(self, start, limit):
        self.limit = limit
        return {"index": min(10, start["index"] + getattr(limit, "max_rows", 10))}

    def partitions(self, start, end):
        return [InputPartition((i, min(i + 3, end["index"]))) for i in range(start["index"], end["index"], 3)]

    def read(self, partition):
        for i in range(*partition.value):
            yield (i, f"n{i}")


class CountingSource(DataSource):
    @classmethod
    def name(cls):
        return "counting"

    def schema(self):
        return "id BIGINT NOT NULL, name STRING COMMENT 'who'"

    def streamReader(self, schema):
        assert schema.fieldNames() == ["id", "name"]
        return Counting(ReadMaxRows(int(self.options.get("MaxRows", "10"))))


class OldStyle(Counting):
    def latestOffset(self):
        return {"index": 10}


class TakesNoLimit(Counting):
    def latestOffset(self, start, limit):
        assert isinstance(limit, ReadAllAvailable)
        return {"index": 10}


def test_a_data_source_class_with_options_is_read_unchanged(log, epochs):
    """Its schema comes from its DDL, its limit from its options, in any case of letters."""
    source = PythonSource(CountingSource, {"maxrows": "4"})
    assert source.schema() == SCHEMA
    reader = source.reader(log)
    assert [good["id"].to_list() for good, _, _ in epochs.run(reader, SCHEMA)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [good.height for good, _, _ in epochs.run(reader, SCHEMA, limit=ReadLimit(3))] == [3, 3, 3, 1]
    assert source.signature().startswith("counting: PythonSource(id: Int64")


def test_a_ready_reader_needs_a_schema(log, epochs):
    """A reader does not know its own; with one it is read unchanged."""
    with pytest.raises(TopologyError, match="was given without a schema"):
        PythonSource(Counting())
    reader = PythonSource(Counting(), declared_schema=SCHEMA).reader(log)
    assert [good.rows()[-1] for good, _, _ in epochs.run(reader, SCHEMA)] == [(9, "n9")]
    with pytest.raises(TopologyError, match="expected a pyspark DataSource class"):
        PythonSource(object(), declared_schema=SCHEMA)


@pytest.mark.parametrize(
    ("reader", "limit", "expected"),
    [
        (Counting(), 4, ReadMaxRows(4)),
        (Counting(ReadMaxRows(3)), 4, ReadMaxRows(3)),
        (Counting(ReadMaxRows(3)), None, ReadMaxRows(3)),
        (Counting(ReadMaxFiles(1)), 4, ReadMaxFiles(1)),
        (Counting(), None, ReadAllAvailable()),
    ],
)
def test_the_limit_reaches_a_reader_in_the_form_it_knows(reader, limit, expected):
    """The smaller of two row limits; a limit of another kind is left as the reader wants it."""
    latest_offset(reader, {"index": 0}, ReadLimit(limit))
    assert reader.limit == expected


@pytest.mark.parametrize("reader", [OldStyle(), TakesNoLimit()])
def test_readers_that_take_no_limit_are_asked_without(reader):
    """The older signature, and readers that refuse a limit they did not ask for."""
    assert latest_offset(reader, {"index": 0}, ReadLimit(4)) == {"index": 10}


class Raising(Counting):
    def latestOffset(self):
        raise ConnectionError("no route")

    def read(self, partition):
        yield (1, "a")
        raise ConnectionError("broken off")


def test_failures_of_a_reader_name_source_and_split():
    """Also when it raises in the middle of a split."""
    with pytest.raises(SourceError, match="source Raising could not list its newest input: ConnectionError: no route"):
        latest_offset(Raising(), {"index": 0}, ReadLimit())
    with pytest.raises(SourceError, match=r"source Raising could not read split \(0, 3\): ConnectionError: broken off"):
        read_split(Raising(), InputPartition((0, 3)), SCHEMA)


class Listed:
    """A reader whose splits are what it yields."""

    def read(self, partition):
        return iter(partition)


def test_an_offset_must_be_a_dict():
    """The error shows what came."""
    reader = Listed()
    reader.latestOffset = lambda: 5
    with pytest.raises(SourceError, match="gave the offset 5; expected a dict"):
        latest_offset(reader, {}, ReadLimit())


def test_rows_that_do_not_fit_the_schema_are_told_apart():
    """Wrong length, wrong type, not a row; each with its number, and the rows around them are kept."""
    rows = [(1, "a"), ("x", "b"), (3,), (None, None), "text", Row(name="z", id=6), Row(id=7, title="q")]
    good, bad = read_split(Listed(), rows, SCHEMA)
    assert good.rows() == [(1, "a"), (None, None), (6, "z")]
    assert [location.rpartition(" row ")[2] for location in bad["location"]] == ["2", "3", "5", "7"]
    assert bad["row"].to_list()[:2] == ["('x', 'b')", "(3,)"]
    assert bad["error"][0].startswith("column 'id' is Int64")
    assert bad["error"][1] == "expected 2 fields (id, name), got 1"


def test_record_batches_are_taken_as_they_are_or_refused():
    """Columns by name, cast where they must be; a batch without a column is an error that names it."""
    batch = pa.record_batch({"name": ["a", "b"], "id": pa.array([1, 2], pa.int32())})
    good, bad = read_split(Listed(), [batch, batch], SCHEMA)
    assert good.rows() == [(1, "a"), (2, "b")] * 2 and bad.height == 0
    with pytest.raises(SourceError, match="has the columns id, but the schema also has name"):
        read_split(Listed(), [batch.select(["id"])], SCHEMA)


def test_nested_values_and_instants_of_rows_are_converted():
    """Maps become lists of pairs, structs may be rows, instants become naive UTC."""
    ddl = "tags ARRAY<STRING>, counts MAP<STRING, INT>, place STRUCT<x: INT, y: DOUBLE>, at TIMESTAMP"
    schema = PythonSource(ListedFromTheStart(), declared_schema=ddl).schema()
    row = (["a"], {"k": 1}, Row(x=1, y=2.0), datetime(2024, 1, 1, tzinfo=UTC))
    good, bad = read_split(Listed(), [row, (None, None, (3, None), None)], schema)
    assert bad.height == 0
    assert good.rows() == [
        (["a"], [{"key": "k", "value": 1}], {"x": 1, "y": 2.0}, datetime(2024, 1, 1)),
        (None, None, {"x": 3, "y": None}, None),
    ]


class ListedFromTheStart(Listed):
    def initialOffset(self):
        return {}


def test_bad_rows_of_a_python_source_fail_or_are_routed(log, epochs):
    """The policy is the source's."""

    class Dirty(Counting):
        def read(self, partition):
            yield (1, "a")
            yield ("one", "b")

    failing = PythonSource(Dirty(), declared_schema=SCHEMA).reader(log)
    with pytest.raises(BadRowError, match=r"Dirty split \(0, 3\) row 2: column 'id' is Int64"):
        next(epochs.run(failing, SCHEMA))
    routing = PythonSource(Dirty(), declared_schema=SCHEMA, bad_rows="route").reader(log)
    good, bad, _ = next(epochs.run(routing, SCHEMA))
    assert (good.height, bad.height) == (4, 4)


class Simple(SimpleDataSourceStreamReader):
    def initialOffset(self):
        return {"index": 0}

    def read(self, start):
        end = {"index": min(6, start["index"] + 4)}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start, end):
        return iter([(i, f"n{i}") for i in range(start["index"], end["index"])])


class SimpleSource(CountingSource):
    def streamReader(self, schema):
        return DataSource.streamReader(self, schema)

    def simpleStreamReader(self, schema):
        return Simple()


@pytest.mark.parametrize("source", [PythonSource(SimpleSource), PythonSource(Simple(), declared_schema=SCHEMA)])
def test_a_simple_reader_is_read_between_its_offsets(log, epochs, source):
    """One split per epoch, which can be read again."""
    assert [good["id"].to_list() for good, _, _ in epochs.run(source.reader(log), SCHEMA)] == [[0, 1, 2, 3], [4, 5]]


def test_a_simple_reader_that_does_not_move_on_is_refused(log):
    """Its rows would come again for ever."""

    class Stuck(Simple):
        def read(self, start):
            return iter([(1, "a")]), start

    reader = PythonSource(Stuck(), declared_schema=SCHEMA).reader(log)
    with pytest.raises(SourceError, match="returned rows without moving its offset"):
        latest_offset(reader, {"index": 0}, ReadLimit())


def test_a_source_without_stream_reader_is_refused(log):
    """It says that it can only be read as a batch."""

    class BatchOnly(CountingSource):
        def streamReader(self, schema):
            return DataSource.streamReader(self, schema)

    with pytest.raises(SourceError, match="offers no stream reader"):
        PythonSource(BatchOnly).reader(log)
