"""Spark's schemas as Polars schemas and back, without a JVM. Instants become naive UTC, maps become lists of key and value."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl

from resurge.errors import TopologyError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[A-Za-z_][\w.]*|\d+|[<>(),:])")
_WORDS = {
    "boolean": "BooleanType",
    "byte": "ByteType",
    "tinyint": "ByteType",
    "short": "ShortType",
    "smallint": "ShortType",
    "int": "IntegerType",
    "integer": "IntegerType",
    "long": "LongType",
    "bigint": "LongType",
    "float": "FloatType",
    "real": "FloatType",
    "double": "DoubleType",
    "string": "StringType",
    "char": "StringType",
    "varchar": "StringType",
    "binary": "BinaryType",
    "date": "DateType",
    "timestamp": "TimestampType",
    "timestamp_ltz": "TimestampType",
    "timestamp_ntz": "TimestampNTZType",
}
_DECIMAL_WORDS = ("decimal", "dec", "numeric")
_PLAIN: dict[str, pl.DataType] = {
    "BooleanType": pl.Boolean(),
    "ByteType": pl.Int8(),
    "ShortType": pl.Int16(),
    "IntegerType": pl.Int32(),
    "LongType": pl.Int64(),
    "FloatType": pl.Float32(),
    "DoubleType": pl.Float64(),
    "StringType": pl.String(),
    "CharType": pl.String(),
    "VarcharType": pl.String(),
    "BinaryType": pl.Binary(),
    "DateType": pl.Date(),
    "TimestampType": pl.Datetime("us"),
    "TimestampNTZType": pl.Datetime("us"),
    "DayTimeIntervalType": pl.Duration("us"),
}
_SPARK_NAMES = {
    pl.Boolean: "BooleanType",
    pl.Int8: "ByteType",
    pl.Int16: "ShortType",
    pl.Int32: "IntegerType",
    pl.Int64: "LongType",
    pl.Float32: "FloatType",
    pl.Float64: "DoubleType",
    pl.String: "StringType",
    pl.Binary: "BinaryType",
    pl.Date: "DateType",
    pl.Datetime: "TimestampType",
    pl.Duration: "DayTimeIntervalType",
}


def struct_type(schema: Any) -> "StructType":
    """A Spark schema from a StructType, a DDL string such as "id BIGINT, tags ARRAY<STRING>", or a Polars schema."""
    from pyspark.sql.types import StructField, StructType

    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, str):
        return _Ddl(schema).columns()
    if isinstance(schema, pl.Schema):
        return StructType([StructField(name, _spark_type(kind)) for name, kind in schema.items()])
    raise TopologyError(f"a schema is {schema!r}; expected a pyspark StructType, a DDL string or a polars Schema")


def polars_schema(schema: Any) -> pl.Schema:
    """A Polars schema from a StructType, a DDL string or a Polars schema.

    >>> polars_schema("id BIGINT, tags ARRAY<STRING>")
    Schema([('id', Int64), ('tags', List(String))])
    """
    if isinstance(schema, pl.Schema):
        return schema
    return pl.Schema({field.name: _polars_type(field.dataType, field.name) for field in struct_type(schema).fields})


def _polars_type(kind: "DataType", column: str) -> pl.DataType:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    if isinstance(kind, ArrayType):
        return pl.List(_polars_type(kind.elementType, column))
    if isinstance(kind, MapType):
        pair = {"key": _polars_type(kind.keyType, column), "value": _polars_type(kind.valueType, column)}
        return pl.List(pl.Struct(pair))
    if isinstance(kind, StructType):
        return pl.Struct({field.name: _polars_type(field.dataType, column) for field in kind.fields})
    if isinstance(kind, DecimalType):
        return pl.Decimal(kind.precision, kind.scale)
    plain = _PLAIN.get(type(kind).__name__)
    if plain is None:
        raise TopologyError(f"column {column!r} is of Spark type {kind.simpleString()}, which has no Polars type: cast it")
    return plain


def _spark_type(kind: Any) -> Any:
    from pyspark.sql import types

    kind = kind() if isinstance(kind, type) else kind
    if isinstance(kind, pl.List):
        return types.ArrayType(_spark_type(kind.inner))
    if isinstance(kind, pl.Struct):
        return types.StructType([types.StructField(field.name, _spark_type(field.dtype)) for field in kind.fields])
    if isinstance(kind, pl.Decimal):
        return types.DecimalType(kind.precision or 38, kind.scale or 0)
    name = _SPARK_NAMES.get(type(kind))
    if name is None:
        raise TopologyError(f"the Polars type {kind} has no Spark type; expected one of {', '.join(map(str, _SPARK_NAMES))}")
    return getattr(types, name)()


class _Ddl:
    """A reader of Spark's DDL strings: `StructType.fromDDL` would need a running session."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error(f"{text[position:].strip()[:20]!r} is not understood")
            self.tokens.append(match[1])
            position = match.end()
        self.position = 0

    def columns(self) -> "StructType":
        fields = self._fields()
        if self.position < len(self.tokens):
            raise self._error(f"{self._peek()!r} was not expected")
        return fields

    def _fields(self) -> "StructType":
        from pyspark.sql.types import StructField, StructType

        fields = []
        while self._peek() not in ("", ">"):
            name = self._next().strip("`").replace("``", "`")
            self._skip(":")
            kind = self._kind()
            fields.append(StructField(name, kind, self._nullable()))
            if not self._skip(","):
                break
        return StructType(fields)

    def _nullable(self) -> bool:
        nullable = True
        while self._peek().lower() in ("not", "comment"):
            if self._next().lower() == "not":
                self._expect("null")
                nullable = False
            else:
                self._next()
        return nullable

    def _kind(self) -> "DataType":
        from pyspark.sql import types

        word = self._next().lower()
        nested: dict[str, Callable[[], DataType]] = {
            "array": lambda: types.ArrayType(self._kind()),
            "map": self._map,
            "struct": self._fields,
        }
        if word in nested:
            self._expect("<")
            kind = nested[word]()
            self._expect(">")
            return kind
        numbers = self._numbers()
        if word in _DECIMAL_WORDS:
            return types.DecimalType(*(numbers or [10, 0]))
        if word not in _WORDS:
            raise self._error(f"{word!r} is not a type")
        return getattr(types, _WORDS[word])()

    def _map(self) -> "DataType":
        from pyspark.sql.types import MapType

        key = self._kind()
        self._expect(",")
        return MapType(key, self._kind())

    def _numbers(self) -> list[int]:
        numbers: list[int] = []
        if self._skip("("):
            while not self._skip(")"):
                number = self._next()
                if not number.isdigit():
                    raise self._error(f"{number!r} is not a number")
                numbers.append(int(number))
                self._skip(",")
        return numbers

    def _peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def _next(self) -> str:
        if self.position >= len(self.tokens):
            raise self._error("it ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def _skip(self, token: str) -> bool:
        found = self._peek() == token
        self.position += found
        return found

    def _expect(self, token: str) -> None:
        if self._next().lower() != token:
            raise self._error(f"{self.tokens[self.position - 1]!r} came where {token!r} was expected")

    def _error(self, problem: str) -> TopologyError:
        return TopologyError(
            f"the schema {self.text!r} is not a DDL string: {problem}; expected such as 'id BIGINT, tags ARRAY<STRING>'"
        )
