"""Code of the user's: what cannot be sent is named, and an error in it keeps its line."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from resurge.api.builder import TopologyBuilder
from resurge.connectors.contracts import StagedPart
from resurge.connectors.python_source import PythonSource
from resurge.connectors.sinks import CallbackSink, MemorySink
from resurge.errors import JobError, ResurgeError, SinkError, SourceError, TopologyError
from resurge.model.topology import Topology
from resurge.operators.keyed_state import value_of
from resurge.operators.program import compile_topology
from resurge.runtime.driver.job_code import packed
from resurge.runtime.worker.level import JobCode
from tests.support.engines import Bench, finish
from tests.support.scripted import scripted

ROWS = pl.DataFrame({"k": ["a", "b"], "v": [1, 0]})
LOCK = threading.Lock()


def described(name: str, function: object) -> Topology:
    """A map, or for a class a process, in a topology with another operator."""
    job = TopologyBuilder("job", key_groups=1)
    rows = job.source("rows", scripted([[ROWS]])).filter("good", pl.col("v") >= 0)
    if isinstance(function, type):
        made = rows.process(name, function, key="k", schema={"k": pl.String}, state={"n": value_of(pl.Int64)})
    elif name == "table":
        made = rows.process_table(name, function, key="k", schema={"k": pl.String}, state={"n": pl.Int64})
    else:
        made = rows.map(name, function, schema=ROWS.schema)
    made.query("out")
    return job.build()


def closure():
    """A function that has a connection in its closure."""
    connection = sqlite3.connect(":memory:")
    return lambda table: table.head(connection.total_changes)


def uses_global(table: pl.DataFrame) -> pl.DataFrame:
    """A function that takes a lock of its module, in a function within it."""

    def locked() -> pl.DataFrame:
        with LOCK:
            return table

    return locked()


class Holding:
    """An object that has a file open."""

    def __init__(self, lock: object) -> None:
        self.inner = {"locks": [1, lock]}

    def __call__(self, table: pl.DataFrame) -> pl.DataFrame:
        return table


class Handler:
    """A handler that has a lock as an attribute of the class."""

    lock = LOCK

    def on_rows(self, key, rows, state, timers):
        return None


UNSENDABLE = {
    "closure": (closure, r"connection is a sqlite3.Connection"),
    "global": (lambda: uses_global, r"function.LOCK is a _thread.lock"),
    "object": (lambda: Holding(LOCK), r"function.inner.locks.\[1\] is a _thread.lock"),
    "partial": (lambda: partial(lambda table, lock: table, lock=LOCK), r"function.keywords.lock is a _thread.lock"),
    "class": (lambda: Handler, r"handler.lock is a _thread.lock"),
}


@pytest.mark.parametrize("case", UNSENDABLE)
def test_what_cannot_be_sent_to_the_nodes_is_named_with_its_operator(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, with what to do about it."""
    from pyspark import cloudpickle

    make, wanted = UNSENDABLE[case]
    topology = described("mine", make())
    by_name = __import__(__name__, fromlist=["x"])
    cloudpickle.register_pickle_by_value(by_name)
    try:
        with pytest.raises(
            TopologyError, match=rf"operator 'mine' cannot be sent to the nodes: .*{wanted}, which cannot"
        ) as caught:
            packed(JobCode(compile_topology(topology), {}, {}))
    finally:
        cloudpickle.unregister_pickle_by_value(by_name)
    assert "\n" not in str(caught.value)
    assert "inside the function, where it runs" in str(caught.value)


def inverse(value: int) -> float:
    """What fails for zero."""
    return 1 / value


def fails(table: pl.DataFrame) -> pl.DataFrame:
    """Fails two calls down."""
    return table.with_columns(v=pl.Series([int(inverse(value)) for value in table["v"]], dtype=pl.Int64))


def fails_in_polars(table: pl.DataFrame) -> pl.DataFrame:
    """Polars fails, because of this line."""
    return table.select("k", pl.col("v") + pl.col("missing"))


def fails_in_tables(state: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Fails on whole tables."""
    return state, rows.select(str(inverse(0)))


class FailingHandler:
    """Fails for one key."""

    def on_rows(self, key, rows, state, timers):
        yield {"k": str(inverse(rows["v"][0]))}


FAILING = {
    "map": ("mine", fails, "ZeroDivisionError: division by zero", "return 1 / value"),
    "polars": ("mine", fails_in_polars, "ColumnNotFoundError", 'return table.select("k", pl.col("v") + pl.col("missing"))'),
    "table": ("table", fails_in_tables, "ZeroDivisionError: division by zero", "return 1 / value"),
    "process": ("mine", FailingHandler, "ZeroDivisionError: division by zero", "return 1 / value"),
}


@pytest.mark.parametrize("case", FAILING)
def test_an_error_in_a_users_function_keeps_its_lines(case: str, tmp_path: Path) -> None:
    """File, line number and text of the lines that led to it, innermost last; none of the engine's."""
    name, function, error, line = FAILING[case]
    bench = Bench(tmp_path)
    with pytest.raises(JobError) as caught:
        finish(bench.engine(described(name, function)))
    first, *lines = str(caught.value).splitlines()
    assert error in first and f"operator {name!r}" in first
    assert line in [text.strip() for text in lines[-2:]]
    files = [text for text in lines if text.strip().startswith("File ")]
    assert all(f'File "{__file__}", line ' in text for text in files)
    assert len(files) == {"polars": 1, "map": 3, "table": 2, "process": 2}[case]


class FailingReader(DataSourceStreamReader):
    """Fails where it is told to."""

    def __init__(self, where: str) -> None:
        self.where = where

    def initialOffset(self) -> dict:
        return self._at("initialOffset", {"n": 0})

    def latestOffset(self) -> dict:
        return self._at("latestOffset", {"n": 1})

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        return self._at("partitions", [InputPartition(0)])

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int]]:
        yield self._at("read", ("a", 1))

    def commit(self, end: dict) -> None:
        self._at("commit", None)

    def stop(self) -> None:
        self._at("stop", None)

    def _at(self, where: str, value: object) -> object:
        return value if where != self.where else inverse(0)


class FailingSink(MemorySink):
    """Fails where it is told to."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def __reduce__(self) -> tuple[type["FailingSink"], tuple[str]]:
        return (FailingSink, (self.where,))

    def open(self, *given: object) -> None:
        self._at("open", super().open, *given)

    def stage(self, *given: object) -> StagedPart:
        return self._at("stage", super().stage, *given)

    def publish(self, *given: object) -> None:
        self._at("publish", super().publish, *given)

    def forget(self, *given: object) -> None:
        self._at("forget", super().forget, *given)

    def _at(self, where: str, function: Callable[..., Any], *given: object) -> Any:
        return function(*given) if where != self.where else inverse(0)


@pytest.mark.parametrize("where", ["initialOffset", "latestOffset", "partitions", "read", "commit", "stop"])
def test_an_error_in_a_users_source_keeps_its_lines(where: str, tmp_path: Path) -> None:
    """Whichever of its methods it was, on the driver or on a node."""
    job = TopologyBuilder("job", key_groups=1)
    job.source("rows", PythonSource(FailingReader(where), declared_schema="k STRING, v BIGINT")).query("out")
    with pytest.raises(SourceError) as caught:
        finish(Bench(tmp_path).engine(job.build(), checkpoint_interval=1, checkpoints_kept=1))
    lines = [text.strip() for text in str(caught.value).splitlines()]
    assert "ZeroDivisionError: division by zero" in lines[0] and lines[-2] == "return 1 / value", str(caught.value)


@pytest.mark.parametrize("where", ["open", "stage", "publish", "forget"])
def test_an_error_in_a_users_sink_keeps_its_lines(where: str, tmp_path: Path) -> None:
    """Whichever of its methods it was, on the driver or on a node; the query is named where one is known."""
    job = TopologyBuilder("job", key_groups=1)
    job.source("rows", scripted([[ROWS], [ROWS]])).query("out", sink=FailingSink(where))
    with pytest.raises(ResurgeError) as caught:
        finish(Bench(tmp_path).engine(job.build(), checkpoint_interval=1, checkpoints_kept=1))
    lines = [text.strip() for text in str(caught.value).splitlines()]
    assert "ZeroDivisionError: division by zero" in lines[0] and "return 1 / value" in lines[-2:], str(caught.value)
    assert where == "stage" or "query 'out'" in lines[0]


@pytest.mark.parametrize("per_part", [False, True])
def test_an_error_in_a_callback_keeps_its_lines(per_part: bool, tmp_path: Path) -> None:
    """The epoch and the query are named, and the line that failed."""

    def show(*given: object) -> None:
        inverse(0)

    job = TopologyBuilder("job", key_groups=1)
    job.source("rows", scripted([[ROWS]])).query("out", sink=CallbackSink(show, per_part=per_part))
    with pytest.raises(SinkError, match=r"callback of query 'out' failed for epoch 1: ZeroDivisionError") as caught:
        finish(Bench(tmp_path).engine(job.build()))
    lines = [text.strip() for text in str(caught.value).splitlines()]
    assert "inverse(0)" in lines and "return 1 / value" in lines[-2:], str(caught.value)
