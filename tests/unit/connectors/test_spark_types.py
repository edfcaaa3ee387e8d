"""Spark's schemas are understood without a JVM."""

import polars as pl
import pytest
from pyspark.sql import types

from resurge.connectors.spark_types import polars_schema, struct_type
from resurge.errors import TopologyError


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("a INT", {"a": pl.Int32}),
        ("a: bigint, b smallint, c tinyint, d boolean", {"a": pl.Int64, "b": pl.Int16, "c": pl.Int8, "d": pl.Boolean}),
        ("f float, d DOUBLE, s string, b binary", {"f": pl.Float32, "d": pl.Float64, "s": pl.String, "b": pl.Binary}),
        ("d date, t timestamp, n timestamp_ntz", {"d": pl.Date, "t": pl.Datetime("us"), "n": pl.Datetime("us")}),
        ("a DECIMAL(12, 3), b dec, c varchar(20)", {"a": pl.Decimal(12, 3), "b": pl.Decimal(10, 0), "c": pl.String}),
        ("a ARRAY<ARRAY<INT>>", {"a": pl.List(pl.List(pl.Int32))}),
        ("m MAP<STRING, BIGINT>", {"m": pl.List(pl.Struct({"key": pl.String, "value": pl.Int64}))}),
        ("s STRUCT<x: INT NOT NULL, y STRUCT<z: STRING>>", {"s": pl.Struct({"x": pl.Int32, "y": pl.Struct({"z": pl.String})})}),
        ("`odd, name` INT NOT NULL COMMENT 'it''s, odd'", {"odd, name": pl.Int32}),
    ],
)
def test_a_ddl_string_becomes_a_schema(ddl, expected):
    """Every type that Polars also has."""
    if "it''s" in ddl:
        ddl = ddl.replace("''", "\\'")
    assert polars_schema(ddl) == pl.Schema(expected)


@pytest.mark.parametrize(
    "ddl", ["a", "a INT,, b INT", "a ARRAY<INT", "a WIDGET", "a INT) b", "a DECIMAL(x)", "a INT b INT", "a #"]
)
def test_a_string_that_is_no_ddl_is_refused_with_an_example(ddl):
    """The error shows the string and what one looks like."""
    with pytest.raises(TopologyError, match=r"is not a DDL string.*expected such as"):
        polars_schema(ddl)


def test_a_schema_survives_the_way_to_spark_and_back():
    """Polars to Spark to Polars."""
    schema = pl.Schema(
        {"a": pl.Int64, "b": pl.List(pl.String), "c": pl.Struct({"x": pl.Date}), "d": pl.Datetime("us"), "e": pl.Decimal(5, 2)}
    )
    assert polars_schema(struct_type(schema)) == schema


def test_types_without_counterpart_are_refused():
    """The error names the column or the type."""
    with pytest.raises(TopologyError, match="column 'v' is of Spark type void"):
        polars_schema(types.StructType([types.StructField("v", types.NullType())]))
    with pytest.raises(TopologyError, match="Time has no Spark type"):
        struct_type(pl.Schema({"t": pl.Time}))
    with pytest.raises(TopologyError, match="expected a pyspark StructType, a DDL string or a polars Schema"):
        struct_type(5)
