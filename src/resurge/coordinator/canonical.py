"""Any value as plain data in one fixed order, so that two runs can be compared, whatever the order of their sets."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import msgspec


def plain(value: Any) -> Any:
    """The value as lists, texts and numbers: mappings and sets are sorted.

    >>> plain({"b": frozenset((2, 1)), "a": range(3)})
    [['a', [0, 3]], ['b', [1, 2]]]
    """
    if isinstance(value, Mapping):
        return sorted(([plain(key), plain(item)] for key, item in value.items()), key=repr)
    if isinstance(value, frozenset | set):
        return sorted((plain(item) for item in value), key=repr)
    if isinstance(value, range):
        return [value.start, value.stop]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        # What two equal values may have computed or not says nothing of them.
        return [type(value).__name__, *(plain(getattr(value, field.name)) for field in fields(value) if field.compare)]
    if isinstance(value, msgspec.Struct):
        return [type(value).__name__, *(plain(getattr(value, name)) for name in value.__struct_fields__)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def digest(value: Any) -> int:
    """A number that is the same for equal values, in every process.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2.0, "a": 1})
    True
    """
    return zlib.crc32(repr(plain(value)).encode())
