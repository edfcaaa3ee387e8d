"""Rows and tables of other libraries as Polars frames of a given schema; rows that do not fit are told apart."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from resurge.connectors.contracts import BAD_ROW_SCHEMA
from resurge.errors import BadRowError

SHOWN_ROW_CHARACTERS = 300


@dataclass(frozen=True)
class BadRow:
    """A row that does not fit the schema: where it was, what it said, what is wrong with it."""

    location: str
    row: str
    error: str


def bad_frame(rows: Sequence[BadRow]) -> pl.DataFrame:
    """Bad rows as a table."""
    return pl.DataFrame([(row.location, row.row, row.error) for row in rows], schema=BAD_ROW_SCHEMA, orient="row")


def refuse_bad_rows(bad: pl.DataFrame) -> None:
    """Under the policy "fail": name the first bad row and say what to do."""
    if not bad.height:
        return
    location, row, error = bad.row(0)
    shown = row if len(row) <= SHOWN_ROW_CHARACTERS else row[:SHOWN_ROW_CHARACTERS] + "..."
    others = f" ({bad.height - 1} more bad rows follow)" if bad.height > 1 else ""
    raise BadRowError(
        f"{location}: {error}; the row is {shown!r}{others}: "
        "correct the input, or give the source bad_rows='route' to set such rows aside"
    )


def conform(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """A frame with exactly the schema's columns; raises a Polars error where a column is missing or does not cast."""
    if frame.schema == schema:
        return frame
    return frame.select([_conformed(frame, name, kind) for name, kind in schema.items()])


def _conformed(frame: pl.DataFrame, name: str, kind: pl.DataType) -> pl.Expr:
    column, present = pl.col(name), frame.schema.get(name)
    if isinstance(present, pl.Datetime) and isinstance(kind, pl.Datetime) and present.time_zone and not kind.time_zone:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return column if present == kind else column.cast(kind)


def frame_of_rows(rows: Sequence[Any], schema: pl.Schema, location: Callable[[int], str]) -> tuple[pl.DataFrame, list[BadRow]]:
    """Tuples or `Row`s as a frame, converted column by column, and the rows that do not fit."""
    names = tuple(schema)
    lengths = {len(row) for row in rows if isinstance(row, tuple | list)}
    named = any(hasattr(row, "__fields__") for row in rows)
    if not named and lengths == {len(names)} and all(isinstance(row, tuple | list) for row in rows):
        try:
            return _frame_of_columns(zip(*rows, strict=True), schema), []
        except Exception:  # which row is at fault is found below, row by row
            pass
    return _frame_row_by_row(rows, schema, location)


def _frame_row_by_row(
    rows: Sequence[Any], schema: pl.Schema, location: Callable[[int], str]
) -> tuple[pl.DataFrame, list[BadRow]]:
    good, bad = [], []
    for index, row in enumerate(rows):
        try:
            values = _in_order(row, schema)
            _frame_of_columns([[value] for value in values], schema)
        except Exception as error:
            bad.append(BadRow(location(index), repr(row), first_line(error)))
        else:
            good.append(values)
    columns = list(zip(*good, strict=True)) if good else [() for _ in schema]
    return _frame_of_columns(columns, schema), bad


def _in_order(row: Any, schema: pl.Schema) -> Sequence[Any]:
    """A row's values in the schema's order; a `Row` with names is read by name, as Spark does."""
    if not isinstance(row, tuple | list):
        raise TypeError(f"a row must be a tuple or a Row, got {type(row).__name__}")
    if len(row) != len(schema):
        raise ValueError(f"expected {len(schema)} fields ({', '.join(schema)}), got {len(row)}")
    fields = getattr(row, "__fields__", None)
    if fields is None:
        return row
    if set(fields) != set(schema):
        raise ValueError(f"expected the fields {', '.join(schema)}, got {', '.join(fields)}")
    by_name = dict(zip(fields, row, strict=True))
    return [by_name[name] for name in schema]


def _frame_of_columns(columns: Any, schema: pl.Schema) -> pl.DataFrame:
    series = []
    for (name, kind), values in zip(schema.items(), columns, strict=True):
        plain = [_plain(value, kind) for value in values] if isinstance(kind, pl.List | pl.Struct | pl.Array) else values
        try:
            series.append(pl.Series(name, plain, dtype=kind, strict=True))
        except Exception as error:
            raise ValueError(f"column {name!r} is {kind}: {first_line(error)}") from error
    return conform(pl.DataFrame(series), schema)


def _plain(value: Any, kind: Any) -> Any:
    """Nested values as Polars takes them: a map is a list of pairs, a `Row` or tuple in a struct is a dict."""
    if value is None:
        return None
    if isinstance(kind, pl.List | pl.Array):
        if isinstance(value, dict):
            value = [{"key": key, "value": item} for key, item in value.items()]
        return [_plain(item, kind.inner) for item in value] if isinstance(kind.inner, pl.List | pl.Struct) else list(value)
    if isinstance(kind, pl.Struct):
        names = [field.name for field in kind.fields]
        if isinstance(value, tuple):
            value = dict(zip(getattr(value, "__fields__", names), value, strict=True))
        return {field.name: _plain(value.get(field.name), field.dtype) for field in kind.fields}
    return value


def first_line(error: Exception) -> str:
    """What a library says is wrong, without its hints."""
    return re.split(r"\n|; hint", str(error).strip() or type(error).__name__, maxsplit=1)[0]
