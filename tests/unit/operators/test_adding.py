"""Sums are added to those in state as expressions would add them."""

import random

import numpy as np
import polars as pl
import pytest

from resurge.operators.adding import added
from resurge.operators.aggregates import Aggregates, count, mean, merge_with, min_, sum_
from resurge.operators.hashing import hash_rows
from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import KeyedTable

SUMS: Aggregates = (("rows", count()), ("total", sum_("n")), ("middle", mean("x")))
SCHEMA = pl.Schema(
    {"who": pl.String(), "count()": pl.Int64(), "sum(n)": pl.Int64(), "sum(x)": pl.Float64(), "count(x)": pl.Int64()}
)


def parts_of_some(rng: random.Random, who: list[str]) -> pl.DataFrame:
    rows = [(key, rng.randrange(9), rng.randrange(-9, 9), rng.random(), rng.randrange(9)) for key in who]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def table_of_some(rng: random.Random) -> KeyedTable:
    table = KeyedTable(TableSpec(SCHEMA, ("who",)))
    for _ in range(rng.randrange(1, 4)):
        table = table.apply(TableDelta(parts_of_some(rng, rng.sample("abcdefgh", 4))))
    return table


@pytest.mark.parametrize("seed", range(20))
def test_sums_are_those_of_expressions(seed: int) -> None:
    """To the last bit, for rows that may be known; other rows stay as they are."""
    rng = random.Random(seed)
    table, changed = table_of_some(rng), parts_of_some(rng, rng.sample("abcdefghij", 6))
    known = np.array(sorted(rng.sample(range(6), rng.randrange(1, 7))))
    parts = added(table, changed, hash_rows(changed, ("who",)), known, SUMS)
    assert parts is not None
    older = table.lookup(changed).rename(lambda name: name + "_old")
    merged = changed.hstack(older).with_columns(merge_with(SUMS, "_old", changed.schema)).select(changed.columns)
    expected = pl.concat([(merged if row in known else changed)[row] for row in range(6)])
    assert pl.DataFrame([changed.get_column("who"), *parts]).equals(expected)


def test_what_might_not_fit_is_left_to_expressions() -> None:
    """They fail where a sum does not fit, and do not wrap around."""
    rng = random.Random(0)
    table, changed = table_of_some(rng), parts_of_some(rng, ["a", "b"])
    large = changed.with_columns(pl.lit(2**62).alias("sum(n)"))
    assert added(table, large, hash_rows(large, ("who",)), np.arange(2), SUMS) is None


def test_other_aggregates_are_left_to_expressions() -> None:
    """A least value is no sum."""
    spec = TableSpec(pl.Schema({"who": pl.String(), "min(n)": pl.Int64()}), ("who",))
    changed = pl.DataFrame({"who": ["a"], "min(n)": [1]})
    assert added(KeyedTable(spec), changed, hash_rows(changed, ("who",)), np.arange(1), (("least", min_("n")),)) is None
