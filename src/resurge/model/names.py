"""Identifiers: what a thing may be called, and the types of numbers that must not be mixed up."""

import re
from functools import lru_cache
from typing import NamedTuple, NewType

from resurge.errors import TopologyError

Epoch = NewType("Epoch", int)
Generation = NewType("Generation", int)
KeyGroup = NewType("KeyGroup", int)
NodeId = NewType("NodeId", str)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")


class Partition(NamedTuple):
    """An operator's share of one key group: the unit of state, checkpoint, routing, recovery and migration."""

    operator: str
    key_group: KeyGroup

    def __str__(self) -> str:
        return f"{self.operator}/{self.key_group}"

    @classmethod
    def parse(cls, name: str) -> "Partition":
        """The partition that is written like this.

        >>> Partition.parse("counts/3") == Partition("counts", KeyGroup(3))
        True
        """
        return _parsed(name)


@lru_cache(maxsize=1 << 16)
def _parsed(name: str) -> Partition:
    """Every epoch reports by name what each partition cost."""
    operator, _, group = name.rpartition("/")
    if not operator or not group.isdecimal():
        raise TopologyError(f"a partition is called {name!r}; expected an operator and a key group, such as 'counts/3'")
    return Partition(operator, KeyGroup(int(group)))


def query_partition(query: str, key_group: int) -> str:
    """What the query partition of a key group is called.

    >>> query_partition("top", 3), query_of("top/3")
    ('top/3', 'top')
    """
    return f"{query}/{key_group}"


def query_of(query_partition: str) -> str:
    """The query that a query partition belongs to."""
    return query_partition.rpartition("/")[0] or query_partition


def checked_name(name: object, what: str) -> str:
    """Return a name that is safe in a path, or refuse it."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise TopologyError(
            f"{what} is called {name!r}; expected 1 to 80 letters, digits, '_' or '-', beginning with a letter or digit: "
            "choose such a name"
        )
    return name
