"""Code of the user's: what cannot be sent is named, and an error in it keeps its line."""

import sqlite3
import threading
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.errors import JobError, TopologyError
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
