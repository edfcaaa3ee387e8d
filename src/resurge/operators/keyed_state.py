"""What a user's keyed function sees: the state of one key (values, lists, maps) and the key's event-time timers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from resurge.errors import JobError, TopologyError

_BEGINNING = datetime(1970, 1, 1)
_END_US = (datetime.max - _BEGINNING) // timedelta(microseconds=1)


@dataclass(frozen=True)
class StateField:
    """One declared field of a key's state; make one with `value_of`, `list_of` or `map_of`."""

    kind: str
    item: pl.DataType
    map_key: pl.DataType | None = None

    @property
    def column_type(self) -> pl.DataType:
        """How the field stands in the state table."""
        if self.kind == "value":
            return self.item
        if self.map_key is None:
            return pl.List(self.item)
        return pl.List(pl.Struct({"key": self.map_key, "value": self.item}))


def value_of(kind: pl.DataType) -> StateField:
    """A single value, None until it is set."""
    return StateField("value", _checked(kind))


def list_of(kind: pl.DataType) -> StateField:
    """A list of values, empty at first."""
    return StateField("list", _checked(kind))


def map_of(key: pl.DataType, kind: pl.DataType) -> StateField:
    """A map from keys to values, empty at first, in order of insertion."""
    return StateField("map", _checked(kind), _checked(key))


def _checked(kind: object) -> pl.DataType:
    made = kind() if isinstance(kind, type) and issubclass(kind, pl.DataType) else kind
    if not isinstance(made, pl.DataType):
        raise TopologyError(f"a state field has type {kind!r}; expected a Polars type such as pl.Int64 or pl.String()")
    return made


class ListState:
    """A list in a key's state; what is not said here (insert, remove) is done by assigning a new list to the field."""

    def __init__(self, items: Iterable[Any], changed: Callable[[], None]) -> None:
        self._items = list(items)
        self._changed = changed

    def append(self, item: Any) -> None:
        """Add one item at the end."""
        self._items.append(item)
        self._changed()

    def extend(self, items: Iterable[Any]) -> None:
        """Add items at the end."""
        self._items.extend(items)
        self._changed()

    def clear(self) -> None:
        """Remove all items."""
        self._items.clear()
        self._changed()

    def __iter__(self) -> Iterator[Any]:
        return iter(tuple(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Any:
        return self._items[index]


class MapState(MutableMapping[Any, Any]):
    """A map in a key's state: everything a dict can do."""

    def __init__(self, items: Mapping[Any, Any], changed: Callable[[], None]) -> None:
        self._items = dict(items)
        self._changed = changed

    def __getitem__(self, key: Any) -> Any:
        return self._items[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._items[key] = value
        self._changed()

    def __delitem__(self, key: Any) -> None:
        del self._items[key]
        self._changed()

    def __iter__(self) -> Iterator[Any]:
        return iter(tuple(self._items))

    def __len__(self) -> int:
        return len(self._items)


class KeyedState:
    """The state of one key: `state["total"]` reads a field, assigning sets it, `del` clears it."""

    def __init__(self, fields: Mapping[str, StateField], stored: Mapping[str, Any]) -> None:
        self._fields = fields
        self._content = {name: self._opened(name, field, stored[name]) for name, field in fields.items()}
        self.is_changed = False

    def _opened(self, name: str, field: StateField, stored: Any) -> Any:
        if field.kind == "value":
            return stored
        if field.kind == "list":
            return ListState(stored or (), self._mark)
        return MapState({entry["key"]: entry["value"] for entry in stored or ()}, self._mark)

    def _mark(self) -> None:
        self.is_changed = True

    def _field(self, name: str) -> StateField:
        if name not in self._fields:
            raise JobError(
                f"state field {name!r} was not declared; declared are {', '.join(self._fields)}: add it to the state schema"
            )
        return self._fields[name]

    def __getitem__(self, name: str) -> Any:
        self._field(name)
        return self._content[name]

    def __setitem__(self, name: str, value: Any) -> None:
        field = self._field(name)
        if field.kind == "list":
            self._content[name] = ListState(value, self._mark)
        elif field.kind == "map":
            self._content[name] = MapState(value, self._mark)
        else:
            self._content[name] = value
        self._mark()

    def __delitem__(self, name: str) -> None:
        self[name] = None if self._field(name).kind == "value" else {} if self._fields[name].kind == "map" else ()

    def clear(self) -> None:
        """Clear every field."""
        for name in self._fields:
            del self[name]

    def stored(self) -> dict[str, Any] | None:
        """The fields as they stand in the state table, or None if there is nothing to keep."""
        row = {name: _stored(self._content[name]) for name in self._fields}
        return row if any(value is not None for value in row.values()) else None


def _stored(content: Any) -> Any:
    if isinstance(content, MapState):
        return [{"key": key, "value": value} for key, value in content.items()] or None
    return (list(content) or None) if isinstance(content, ListState) else content


class Timers:
    """The event-time timers of one key; a timer is its time, so setting it twice is setting it once."""

    def __init__(self, change: Callable[[int, bool], None], watermark_us: Callable[[], int | None]) -> None:
        self._change = change
        self._watermark_us = watermark_us

    @property
    def watermark(self) -> datetime | None:
        """How far event time has come: a row before it is late."""
        reached_us = self._watermark_us()
        return None if reached_us is None else as_datetime(reached_us)

    def set(self, time: datetime | int) -> None:
        """Ask for `on_timer` once the watermark has reached a time (a datetime, or microseconds since 1970); at once if it has."""
        self._change(as_microseconds(time), True)

    def delete(self, time: datetime | int) -> None:
        """Take a timer back; nothing happens if there is none at that time."""
        self._change(as_microseconds(time), False)


def as_microseconds(time: datetime | int) -> int:
    """Microseconds since 1970; a datetime with a time zone is brought to UTC, one without is taken as it is."""
    if isinstance(time, datetime):
        plain = time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo is not None else time
        return (plain - _BEGINNING) // timedelta(microseconds=1)
    if isinstance(time, int) and not isinstance(time, bool):
        return time
    raise JobError(f"a timer was set or deleted at {time!r}; expected a datetime or whole microseconds since 1970")


def as_datetime(time_us: int) -> datetime:
    """A time in microseconds as Polars shows it in a Datetime column without time zone; the last there is if it lies beyond."""
    return _BEGINNING + timedelta(microseconds=min(time_us, _END_US))
