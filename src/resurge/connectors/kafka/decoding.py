"""Kafka records as tables: raw, or JSON values by schema. Columns are filled by C loops, not by Python code per row."""

from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any

import polars as pl

from resurge.connectors.frames import BadRow
from resurge.connectors.json_lines import decode_values, is_json_type
from resurge.errors import TopologyError

RAW_SCHEMA = pl.Schema(
    {"key": pl.Binary(), "value": pl.Binary(), "partition": pl.Int32(), "offset": pl.Int64(), "timestamp": pl.Datetime("us")}
)
# Columns of a JSON schema that come from the record rather than from its value.
RECORD_COLUMNS: dict[str, pl.DataType] = {f"kafka_{name}": RAW_SCHEMA[name] for name in RAW_SCHEMA if name != "value"}
_VALUE, _PARTITION, _OFFSET = methodcaller("value"), methodcaller("partition"), methodcaller("offset")


def check_json_schema(topic: str, schema: pl.Schema) -> None:
    """Refuse a column that cannot be decoded, on the line that describes the source."""
    for name, kind in schema.items():
        wanted = RECORD_COLUMNS.get(name)
        if wanted is not None and kind != wanted:
            raise TopologyError(f"topic {topic!r}: column {name!r} is {kind}; expected {wanted}: it is filled from the record")
        if not is_json_type(kind):
            raise TopologyError(f"topic {topic!r}: column {name!r} is {kind}, which a JSON value cannot be decoded to")


def raw_frame(messages: Sequence[Any]) -> pl.DataFrame:
    """Records as they are."""
    return pl.DataFrame([record_column(name, f"kafka_{name}", messages) for name in RAW_SCHEMA], schema=RAW_SCHEMA)


def json_frame(topic: str, messages: Sequence[Any], schema: pl.Schema) -> tuple[pl.DataFrame, list[BadRow]]:
    """Records whose values are JSON objects: good rows, and those that do not fit."""
    from_value = pl.Schema({name: kind for name, kind in schema.items() if name not in RECORD_COLUMNS})
    values = list(map(_VALUE, messages))
    good, bad = decode_values(values, from_value)
    refused = [
        BadRow(f"{topic}:{messages[index].partition()}:{messages[index].offset()}", _shown(values[index]), problem)
        for index, problem in bad
    ]
    if len(from_value) == len(schema):
        return good, refused
    skipped = {index for index, _ in bad}
    kept = [message for index, message in enumerate(messages) if index not in skipped] if skipped else messages
    columns = {name: record_column(name, name, kept) for name in schema if name in RECORD_COLUMNS}
    return pl.DataFrame([columns[name] if name in columns else good[name] for name in schema], schema=schema), refused


def record_column(name: str, kind: str, messages: Sequence[Any]) -> pl.Series:
    """One column from the records themselves."""
    read: dict[str, Callable[[Any], Any]] = {
        "kafka_key": methodcaller("key"),
        "kafka_value": _VALUE,
        "kafka_partition": _PARTITION,
        "kafka_offset": _OFFSET,
    }
    if kind == "kafka_timestamp":
        stamps = pl.Series(name, [message.timestamp()[1] for message in messages], dtype=pl.Int64)
        return (stamps * 1000).cast(pl.Datetime("us"))
    values = list(map(read[kind], messages))
    return pl.Series(name, values, dtype=RAW_SCHEMA[kind.removeprefix("kafka_")])


def _shown(value: bytes | None) -> str:
    return "null" if value is None else value.decode("utf-8", "backslashreplace")
