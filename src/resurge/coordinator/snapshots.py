"""A state as bytes and back: every value of it once, however often it is used, and nothing that would run code when it is read."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import msgspec

from resurge.errors import CorruptFileError

PACKAGES = ("resurge.coordinator.", "resurge.model.", "resurge.planning.", "resurge.protocols.", "resurge.telemetry.")
"""Where the classes of values are that a state consists of."""

_LIST, _TUPLE, _SET, _DICT, _RANGE, _VALUE = range(6)


def encoded(value: Any) -> bytes:
    """A value as bytes.

    >>> decoded(encoded({("a", 1): frozenset({2.5}), "r": range(3)})) == {("a", 1): frozenset({2.5}), "r": range(3)}
    True
    """
    return _Writer().written(value)


def decoded(content: bytes) -> Any:
    """The value that was written."""
    return _Reader(*msgspec.msgpack.decode(content)).read()


class _Writer:
    """Values in an order in which every one comes after those that it has."""

    def __init__(self) -> None:
        self.classes: dict[type, int] = {}
        self.values: list[list[Any]] = []
        self._numbers: dict[Any, int] = {}
        self._alive: list[Any] = []

    def written(self, value: Any) -> bytes:
        root = self._plain(value)
        names = [f"{kind.__module__}:{kind.__qualname__}" for kind in self.classes]
        return msgspec.msgpack.encode([names, self.values, root])

    def _plain(self, value: Any) -> Any:
        if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, Enum)):
            return value
        if _parts(value) is not None:
            return [_VALUE, self._number(value)]
        if isinstance(value, Mapping):
            return [_DICT, *(self._plain(each) for item in value.items() for each in item)]
        if isinstance(value, range):
            return [_RANGE, value.start, value.stop, value.step]
        for kind, number in ((list, _LIST), (frozenset, _SET), (Sequence, _TUPLE)):
            if isinstance(value, kind):
                items = [self._plain(each) for each in value]
                return [number, *(sorted(items, key=repr) if kind is frozenset else items)]
        raise TypeError(f"a state has {value!r} of {type(value)}; expected values, collections, numbers and texts")

    def _number(self, value: Any) -> int:
        # Names of partitions are used thousands of times, each time as another tuple.
        known = (type(value), value) if isinstance(value, tuple) else id(value)
        if known not in self._numbers:
            parts = [self._plain(each) for each in _parts(value) or ()]
            self.values.append([self.classes.setdefault(type(value), len(self.classes)), *parts])
            self._numbers[known] = len(self.values) - 1
            self._alive.append(value)
        return self._numbers[known]


def _parts(value: Any) -> tuple[Any, ...] | None:
    """What a value consists of, if it is of a class that has parts."""
    if isinstance(value, Enum):
        return (value.name,)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(value)
    if isinstance(value, type):
        return None
    if is_dataclass(value):
        return tuple(getattr(value, field.name) for field in fields(value))
    if isinstance(value, msgspec.Struct):
        return tuple(getattr(value, name) for name in value.__struct_fields__)
    return None


class _Reader:
    """Makes values again, one after another."""

    def __init__(self, names: list[str], values: list[list[Any]], root: Any) -> None:
        self.classes = [_class(name) for name in names]
        self.made: list[Any] = []
        self.root = root
        for number, *parts in values:
            self.made.append(_made(self.classes[number], [self._value(each) for each in parts]))

    def read(self) -> Any:
        return self._value(self.root)

    def _value(self, plain: Any) -> Any:
        if not isinstance(plain, list):
            return plain
        kind, *items = plain
        if kind == _VALUE:
            return self.made[items[0]]
        if kind == _RANGE:
            return range(*items)
        values = [self._value(each) for each in items]
        if kind == _DICT:
            return dict(zip(values[::2], values[1::2], strict=True))
        return {_LIST: list, _TUPLE: tuple, _SET: frozenset}[kind](values)


def _class(name: str) -> type:
    """A class of values of this project, and no other: a file must not decide what is run."""
    module, _, path = name.partition(":")
    found = getattr(importlib.import_module(module), path, None) if module.startswith(PACKAGES) else None
    is_value = isinstance(found, type) and (
        is_dataclass(found) or issubclass(found, Enum | msgspec.Struct) or hasattr(found, "_fields")
    )
    if not isinstance(found, type) or not is_value:
        raise CorruptFileError(f"a state has a {name}; expected classes of this version of Resurge: replay it with its own")
    return found


def _made(kind: type, parts: list[Any]) -> Any:
    if issubclass(kind, Enum):
        return kind[parts[0]]
    if is_dataclass(kind):
        # Not by its constructor: a value may know things that follow from its past.
        value = object.__new__(kind)
        for field, part in zip(fields(kind), parts, strict=True):
            object.__setattr__(value, field.name, part)
        return value
    return kind(*parts)
