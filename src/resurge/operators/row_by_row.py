"""Whether expressions take each row by itself. Those that do not would depend on where epochs and splits are cut."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl

TOGETHER = frozenset({
    "Agg", "AnonymousAgg", "Over", "Rolling", "Sort", "SortBy", "Gather", "Slice", "Len", "Shift", "CumSum", "CumProd",
    "CumMin", "CumMax", "CumCount", "Rank", "Reverse", "Diff", "PctChange", "Interpolate", "InterpolateBy", "RollingExpr",
    "RollingExprBy", "EwmMean", "EwmMeanBy", "EwmStd", "EwmVar", "RLE", "RLEID", "PeakMin", "PeakMax", "IsUnique",
    "IsDuplicated", "IsFirstDistinct", "IsLastDistinct", "Unique", "UniqueCounts", "ValueCounts", "ArgUnique", "Mode",
    "Any", "All", "ArgSort", "ArgMin", "ArgMax", "TopK", "TopKBy", "SearchSorted", "GatherEvery", "SampleN",
    "ConcatVertical", "Random", "Shuffle", "QCut", "Hist", "Entropy", "Skew", "Kurtosis", "Correlation", "Repeat",
    "IntRange",
})  # fmt: skip
"""What Polars calls the operations that take several rows together."""

_FILLED_FROM_ITSELF = frozenset({"Zero", "One", "MinBound", "MaxBound"})
_ROWS = 9
_CUT = 4


class LengthsDifferError(Exception):
    """The expressions make columns of different lengths of one and the same table."""


def takes_rows_together(
    expressions: Sequence[pl.Expr], run: Callable[[pl.DataFrame], pl.DataFrame], schema: pl.Schema
) -> str | None:
    """Which expression takes several rows together, or None if, as far as can be told, every row stands for itself."""
    for expression in expressions:
        if any(name in TOGETHER for name in _operations(_serialised(expression))):
            return str(expression)
    return None if is_same_in_pieces(run, schema) else ", ".join(map(str, expressions))


def leaves_rows_in_place(expression: pl.Expr) -> bool:
    """Whether an expression is made of columns, constants, arithmetic, comparisons, conditions and functions of one row's values.

    >>> leaves_rows_in_place(pl.col("amount") * 2 > 10), leaves_rows_in_place(pl.col("amount") > pl.col("amount").mean())
    (True, False)
    """
    # What cannot be looked into, such as a Python function, may do anything.
    return _is_plain(_serialised(expression))


def _is_plain(node: Any) -> bool:
    if not isinstance(node, dict) or len(node) != 1:
        return False
    (kind, inside), *_ = node.items()
    if kind in ("Column", "Selector"):
        return True
    if kind == "Literal":
        return isinstance(inside, dict) and next(iter(inside)) in ("Dyn", "Scalar")
    if kind == "Alias":
        return _is_plain(inside[0])
    if kind == "Cast":
        return _is_plain(inside["expr"])
    if kind == "BinaryExpr":
        return _is_plain(inside["left"]) and _is_plain(inside["right"])
    if kind == "Ternary":
        return all(_is_plain(inside[part]) for part in ("predicate", "truthy", "falsy"))
    if kind == "Function":
        return _is_plain_function(inside["function"]) and all(map(_is_plain, inside["input"]))
    return False


def _is_plain_function(function: Any) -> bool:
    """Whether a function, or the one within a family such as that of strings, takes the values of one row."""
    name = _name(function)
    if name not in _PLAIN_FAMILIES:
        return name in _PLAIN_FUNCTIONS
    allowed = _PLAIN_FAMILIES[name]
    return allowed is None or _name(function[name]) in allowed


def _name(node: Any) -> str:
    return node if isinstance(node, str) else next(iter(node))


# Left out: what looks for a format in the first rows, as parsing dates may, and what could be computed in other ways for many
# rows than for few, as powers and logarithms may.
_PLAIN_FUNCTIONS = frozenset({
    "FillNull", "Abs", "Round", "Floor", "Ceil", "Clip", "Coalesce", "AsStruct", "MaxHorizontal", "MinHorizontal",
})  # fmt: skip
_PLAIN_FAMILIES: dict[str, frozenset[str] | None] = {
    "Boolean": frozenset({"IsNull", "IsNotNull", "Not", "IsNan", "IsNotNan", "IsFinite", "IsInfinite", "IsBetween", "IsIn"}),
    "StringExpr": frozenset({
        "Lowercase", "Uppercase", "Contains", "StartsWith", "EndsWith", "LenChars", "LenBytes", "Slice", "Head", "Tail",
        "StripChars", "StripCharsStart", "StripCharsEnd", "StripPrefix", "StripSuffix", "Replace", "Split", "Extract",
        "ConcatHorizontal", "Format",
    }),
    "ListExpr": frozenset({"Length", "Get", "Contains", "Slice"}),
    "StructExpr": frozenset({"FieldByName"}),
    "TemporalExpr": None,
}  # fmt: skip


def _serialised(expression: pl.Expr) -> Any:
    """The expression as a tree, or None where it has a Python function in it."""
    try:
        return json.loads(expression.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, ValueError):
        return None


def _operations(tree: Any) -> Iterator[str]:
    """The names of all operations on columns; what happens within the lists of one row does not count."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, list):
        for item in tree:
            yield from _operations(item)
    elif isinstance(tree, dict):
        for name, inner in tree.items():
            if name == "Function":
                yield from _operations(inner["input"])
                yield from _function(inner["function"])
            elif name == "Eval":
                yield from _operations(inner["expr"])
            elif name == "Alias":
                yield from _operations(inner[0])
            elif name not in ("Column", "Literal", "Selector"):
                yield name
                yield from _operations(inner)


def _function(function: Any) -> Iterator[str]:
    """The name of a function, or of the one within a family such as that of strings."""
    if isinstance(function, str):
        yield function
        return
    for name, inner in function.items():
        if name in ("ListExpr", "ArrayExpr"):
            continue
        if name == "FillNullWithStrategy":
            yield "Shift" if not isinstance(inner, str) or inner not in _FILLED_FROM_ITSELF else name
        else:
            yield name
            if name in ("Boolean", "StringExpr", "Range", "Random"):
                yield from _function(inner)


def is_same_in_pieces(run: Callable[[pl.DataFrame], pl.DataFrame], schema: pl.Schema) -> bool:
    """Whether a made-up table gives the same rows whole and cut in two; True where it cannot be told."""
    table = made_up_table(schema)
    if table is None:
        return True
    try:
        whole = run(table)
        pieces = [run(table.head(_CUT)), run(table.slice(_CUT))]
    except Exception as error:
        if isinstance(error, pl.exceptions.ShapeError) and "DataFrame height" in str(error):
            raise LengthsDifferError(str(error).splitlines()[0]) from error
        # It does not take what we made up, which says nothing of what it is for.
        return True
    return whole.equals(pl.concat(pieces))


def made_up_table(schema: pl.Schema) -> pl.DataFrame | None:
    """Some rows of made-up values, neither sorted nor distinct; None where a column's type has none."""
    try:
        return pl.DataFrame([pl.Series(name, _values(kind, _ROWS), dtype=kind) for name, kind in schema.items()])
    except Exception:
        return None


def _values(kind: pl.DataType, count: int) -> list[Any]:
    """Some values of a type, neither sorted nor distinct."""
    return [_value(kind, (index * 5 + 3) % 7) for index in range(count)]


def _value(kind: pl.DataType, number: int) -> Any:
    if isinstance(kind, pl.List | pl.Array):
        length = kind.size if isinstance(kind, pl.Array) else 1 + number % 3
        return [_value(_instance(kind.inner), number + index) for index in range(length)]
    if isinstance(kind, pl.Struct):
        return {field.name: _value(_instance(field.dtype), number) for field in kind.fields}
    if isinstance(kind, pl.Enum):
        return kind.categories[number % len(kind.categories)]
    return _PLAIN[kind.base_type()](number) if kind.base_type() in _PLAIN else number


def _instance(kind: Any) -> pl.DataType:
    made: pl.DataType = kind() if isinstance(kind, type) else kind
    return made


_PLAIN: dict[type[pl.DataType], Callable[[int], Any]] = {
    pl.Boolean: lambda number: number % 2 == 0,
    pl.Float32: float,
    pl.Float64: float,
    pl.Decimal: Decimal,
    pl.String: str,
    pl.Categorical: str,
    pl.Binary: lambda number: str(number).encode(),
    pl.Date: lambda number: date(2024, 1, 1 + number),
    pl.Time: time,
    pl.Datetime: lambda number: datetime(2024, 1, 1 + number),
    pl.Duration: lambda number: timedelta(hours=number),
    pl.Null: lambda number: None,
}
