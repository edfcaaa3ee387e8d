"""Expressions that take several rows together are refused where they are described; all others are accepted."""

from datetime import datetime

import polars as pl
import pytest

from resurge.api.builder import Stream, TopologyBuilder
from resurge.errors import TopologyError
from resurge.operators.base import EpochContext
from resurge.operators.stateless import Transform
from tests.support.scripted import scripted

SCHEMA = {
    "v": pl.Int64,
    "w": pl.Float64,
    "s": pl.String,
    "k": pl.String,
    "l": pl.List(pl.Int64),
    "at": pl.Datetime("us"),
    "st": pl.Struct({"x": pl.Int64}),
    "c": pl.Categorical,
    "e": pl.Enum(["a", "b"]),
    "d": pl.Decimal(10, 2),
    "r": pl.Array(pl.Float32, 2),
}
TABLE = pl.DataFrame(
    {
        "v": [1, 2, 3],
        "w": [0.5, None, 2.0],
        "s": ["A,b", None, "c"],
        "k": ["x", "y", "x"],
        "l": [[5, 6], [], [7]],
        "at": [datetime(2024, 1, 1, 5, 30)] * 3,
        "st": [{"x": 1}] * 3,
        "c": ["a", "b", "a"],
        "e": ["a", "b", "a"],
        "d": [1, 2, 3],
        "r": [[1.0, 2.0]] * 3,
    },
    schema=SCHEMA,
)
v, w, s, lists = pl.col("v"), pl.col("w"), pl.col("s"), pl.col("l")

TOGETHER = [
    *(v.sum(), v.mean(), v.max(), v.first(), v.count(), v.n_unique(), v.null_count(), v.median(), v.quantile(0.5), pl.len()),
    *(v.sum().over("k"), v.rank().over("k"), v - v.mean(), pl.when(v > 1).then(2).otherwise(v.max()), v / v.sum() > 0.5),
    *(v.shift(), v.diff(), v.pct_change(), v.cum_sum(), v.cum_max(), v.cum_count(), v.rank(), v.sort(), v.reverse()),
    *(v.sort_by("w"), v.arg_sort(), v.arg_max(), v.head(1), v.tail(1), v.slice(1, 2), v.get(0), v.gather([0]), v.top_k(2)),
    *(v.rolling_mean(2), v.rolling_sum_by("at", "1h"), v.ewm_mean(com=1), v.interpolate(), v.forward_fill(), v.backward_fill()),
    *(v.fill_null(strategy="mean"), v.fill_null(strategy="min"), v.is_unique(), v.is_duplicated(), v.is_first_distinct()),
    *(v.unique(), v.mode(), v.value_counts(), v.rle_id(), v.peak_max(), v.implode(), v.is_in(v.implode()), s.str.join(",")),
    *(pl.row_index(), pl.int_range(pl.len()), pl.lit(5), pl.corr("v", "w"), v.sample(1), v.shuffle(seed=1), v.search_sorted(3)),
    *(v.map_batches(lambda column: column - column.min(), return_dtype=pl.Int64), v.sum() > 10**12, (v == v.max()).any()),
]
ALONE = [
    *(v, v + 1, v.alias("n"), v.cast(pl.String), v.round(2), v.clip(0, 3), v.hash(), v.is_in([1, 2]), v.replace({1: 2}), v.abs()),
    *(v.fill_null(0), v.fill_null(strategy="zero"), w.fill_nan(0), v.is_between(1, 2), v.is_null(), pl.coalesce("v", "w")),
    *(s.str.len_chars(), s.str.split(","), s.str.json_path_match("$.a"), s.str.json_decode(pl.Struct({"a": pl.Int64}))),
    *(s.str.to_datetime("%Y-%m-%d"), s.str.to_integer(), pl.concat_str("s", "k"), pl.format("{}-{}", "s", "v")),
    *(
        lists.list.sum(),
        lists.list.sort(),
        lists.list.len(),
        lists.list.eval(pl.element().sum()),
        lists.list.first(),
        lists.list.max(),
    ),
    *(
        lists.list.eval(pl.element().cum_sum()),
        lists.list.get(0, null_on_oob=True),
        lists.list.contains(v),
        pl.col("r").arr.sum(),
    ),
    *(pl.sum_horizontal("v", "w"), pl.max_horizontal("v", "w"), pl.any_horizontal(v > 1, w > 1), pl.struct("v", "w")),
    *(
        pl.col("st").struct.field("x"),
        pl.col("at").dt.truncate("1h"),
        pl.col("at").dt.hour(),
        pl.when(v > 1).then(w).otherwise(v),
    ),
    *(
        v.map_elements(lambda value: divmod(value, 2)[1], return_dtype=pl.Int64),
        pl.all(),
        pl.all().exclude("v"),
        pl.selectors.numeric(),
    ),
    *(pl.col("c").cast(pl.String), pl.col("e").to_physical(), pl.col("d") * 2, v // 2, v % 3, ~(v > 2), -v),
]


def rows() -> Stream:
    """A source with columns of many types."""
    return TopologyBuilder("rows").source("rows", scripted([[pl.DataFrame(schema=SCHEMA)]]), event_time="at")


@pytest.mark.parametrize("expression", TOGETHER, ids=str)
def test_an_expression_over_several_rows_is_refused_with_what_to_use_instead(expression: pl.Expr) -> None:
    """Its result would depend on where epochs are cut."""
    wanted = r"map 'x': .* takes several rows together.*depend on where epochs are cut.*use aggregate\(...\), window\(...\)"
    with pytest.raises(TopologyError, match=wanted):
        rows().map("x", expression)


@pytest.mark.parametrize("expression", ALONE, ids=str)
def test_an_expression_of_one_row_is_accepted(expression: pl.Expr) -> None:
    """Also one that cannot be tried on made-up rows."""
    rows().map("x", expression)


def test_filters_and_flat_maps_are_checked_too() -> None:
    """A condition on a total, and a list that is made of a column."""
    with pytest.raises(TopologyError, match=r"filter 'x': .* takes several rows together"):
        rows().filter("x", pl.col("v") > pl.col("v").mean())
    with pytest.raises(TopologyError, match=r"flat_map 'x': .* takes several rows together"):
        rows().flat_map("x", pl.col("v").implode())
    rows().filter("x", pl.col("v") > 3, pl.col("s").str.contains("a"))
    rows().flat_map("y", "at", pl.col("l"))


def test_columns_of_different_lengths_are_refused_with_the_way_to_explode() -> None:
    """It would fail as soon as a list has other than one element."""
    with pytest.raises(TopologyError, match=r"flat_map 'x' makes columns of different lengths.*leave out explode\(\)"):
        rows().flat_map("x", "at", pl.col("l").explode())


def test_who_declares_that_any_cut_will_do_may_take_rows_together() -> None:
    """What comes out is logged, so that a replay does not change it."""
    rows().map("x", pl.col("v").sum(), deterministic=False)


def transform(kind: str, *expressions: pl.Expr) -> Transform:
    return Transform("x", ("rows",), kind, None, expressions)


@pytest.mark.parametrize("expression", TOGETHER, ids=str)
def test_an_expression_over_several_rows_is_never_applied_to_many_key_groups_at_once(expression: pl.Expr) -> None:
    """A key group's rows would depend on those of others."""
    assert transform("map", expression).apply_row_by_row(TABLE, EpochContext(0, None)) is None


@pytest.mark.parametrize("expression", ALONE, ids=str)
def test_what_is_applied_to_many_key_groups_at_once_tells_which_row_each_is_made_of(expression: pl.Expr) -> None:
    """The rows are those of an ordinary call, each in its place."""
    made = transform("map", expression).apply_row_by_row(TABLE, EpochContext(0, None))
    if made is not None:
        assert made.rows.equals(transform("map", expression).apply(TABLE, EpochContext(0, None)))
        assert made.places.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "expression",
    [v + 1, pl.all(), s.str.to_lowercase(), s.str.split(","), pl.col("at").dt.truncate("1h"), v.clip(0, 3), v.is_in([1, 2])],
    ids=str,
)
def test_usual_expressions_are_applied_to_many_key_groups_at_once(expression: pl.Expr) -> None:
    """Of columns, arithmetic, strings, times and conditions; with another column beside them."""
    assert transform("map", v.alias("beside"), expression).apply_row_by_row(TABLE, EpochContext(0, None))


@pytest.mark.parametrize(
    "expression",
    [
        v.map_batches(lambda column: column + 1, return_dtype=pl.Int64),
        v.map_elements(lambda value: divmod(value, 2)[1], return_dtype=pl.Int64),
        s.str.to_datetime(),
        w.log(),
    ],
    ids=str,
)
def test_what_cannot_be_looked_into_is_applied_to_one_key_group_at_a_time(expression: pl.Expr) -> None:
    """So are a format that is found in the first rows, and functions that may be computed in other ways for many rows."""
    assert transform("map", expression).apply_row_by_row(TABLE, EpochContext(0, None)) is None


def test_filters_and_flat_maps_tell_which_row_each_is_made_of() -> None:
    """A row may be left out, or be made into several."""
    kept = transform("filter", v > 1).apply_row_by_row(TABLE, EpochContext(0, None))
    assert kept is not None and kept.places.tolist() == [1, 2] and kept.rows.equals(TABLE.filter(v > 1))
    several = transform("flat_map", v, lists).apply_row_by_row(TABLE, EpochContext(0, None))
    assert several is not None and several.places.tolist() == [0, 0, 2]
    assert several.rows.rows() == [(1, 5), (1, 6), (3, 7)]
