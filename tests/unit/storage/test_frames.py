"""Tables as bytes: every type comes back, and only the rows that were given are in them."""

import datetime as dt
import decimal

import numpy as np
import polars as pl
import pytest

from resurge.storage.frames import LEAST_SHARED_BYTES, from_bytes, to_bytes

COLUMNS: dict[str, pl.Series] = {
    "int8": pl.Series([1, None], dtype=pl.Int8),
    "uint64": pl.Series([2**64 - 1, None], dtype=pl.UInt64),
    "int128": pl.Series([2**100, None], dtype=pl.Int128),
    "float32": pl.Series([float("nan"), -0.0], dtype=pl.Float32),
    "boolean": pl.Series([True, None]),
    "string": pl.Series(["", "longer than what a view has room for"]),
    "binary": pl.Series([b"\x00", None]),
    "date": pl.Series([dt.date(2020, 1, 1), None]),
    "time": pl.Series([dt.time(1, 2), None]),
    "duration": pl.Series([dt.timedelta(1), None], dtype=pl.Duration("ms")),
    "zoned": pl.Series([dt.datetime(2020, 1, 1), None]).dt.replace_time_zone("Europe/Paris"),
    "nanoseconds": pl.Series([dt.datetime(2020, 1, 1), None], dtype=pl.Datetime("ns")),
    "decimal": pl.Series([decimal.Decimal("1.25"), None], dtype=pl.Decimal(20, 3)),
    "categorical": pl.Series(["a", None], dtype=pl.Categorical),
    "enum": pl.Series(["a", None], dtype=pl.Enum(["b", "a"])),
    "list": pl.Series([["x"], None]),
    "array": pl.Series([[1, 2], None], dtype=pl.Array(pl.Int64, 2)),
    "struct": pl.Series([{"a": 1, "b": "x"}, None]),
    "null": pl.Series([None, None]),
}
ALL = pl.DataFrame(COLUMNS)
PLAIN = ALL.drop("int128", "categorical", "enum", "list", "array", "struct", "null")


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_comes_back(name: str) -> None:
    """With rows, without any, and twice over in two chunks."""
    table = ALL.select(name)
    for given in (table, table.clear(), pl.concat([table, table])):
        found = from_bytes(to_bytes(given))
        assert found.schema == given.schema and found.equals(given)
        # Nothing but nulls has no content that could lie in one piece.
        assert found.n_chunks() == 1 or name == "null"


def test_types_can_be_mixed() -> None:
    """One column that only Polars has does not harm the others, and a table without columns is one."""
    assert from_bytes(to_bytes(ALL)).equals(ALL)
    assert from_bytes(to_bytes(pl.DataFrame())).shape == (0, 0)


@pytest.mark.parametrize("offset", [0, 1, 4, 8, 63])
def test_bytes_may_lie_anywhere(offset: int) -> None:
    """A table inside a packet begins at any byte."""
    content = memoryview(bytes(offset) + bytes(to_bytes(PLAIN)))[offset:]
    assert from_bytes(content).equals(PLAIN)


def test_a_few_rows_of_a_large_table_take_little_room() -> None:
    """Rows that were cut or gathered do not bring the text of their neighbours along."""
    large = pl.DataFrame({"text": [f"some text that is not short, number {number}" for number in range(50_000)]})
    for few in (large.slice(100, 3), large[[5, 7, 40_000]]):
        assert len(to_bytes(few)) < 2_000
        assert from_bytes(to_bytes(few)).equals(few)


def test_a_large_table_shares_the_memory_of_its_bytes_and_a_small_one_does_not() -> None:
    """A state is mapped, not read; a few rows do not keep a whole file mapped."""
    for rows, is_shared in ((LEAST_SHARED_BYTES, True), (10, False)):
        content = np.frombuffer(to_bytes(pl.DataFrame({"number": np.arange(rows)})), dtype=np.uint8)
        found = from_bytes(memoryview(content))
        assert np.shares_memory(found.get_column("number").to_numpy(), content) is is_shared
