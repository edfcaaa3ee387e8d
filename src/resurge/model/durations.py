"""Durations as users write them ("10s", "5 minutes") and as the engine counts them (microseconds)."""

import re
from datetime import timedelta

from resurge.errors import TopologyError

_UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_WORDS = {
    "microsecond": "us",
    "millisecond": "ms",
    "second": "s",
    "sec": "s",
    "minute": "m",
    "min": "m",
    "hour": "h",
    "day": "d",
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)

Duration = str | int | float | timedelta


def microseconds(duration: Duration, what: str) -> int:
    """Turn "10s", "5 minutes", a timedelta or a number of seconds into microseconds.

    >>> microseconds("1.5s", "the interval")
    1500000
    """
    if isinstance(duration, timedelta):
        return round(duration.total_seconds() * 1_000_000)
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        return round(duration * 1_000_000)
    match = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    if match is not None:
        word = match[2].lower()
        unit = word if word in _UNITS_US else _WORDS.get(word.removesuffix("s"), "")
        if unit:
            return round(float(match[1]) * _UNITS_US[unit])
    raise TopologyError(f"{what} is {duration!r}; expected a duration such as '10s', '500ms', '5 minutes' or a timedelta")


def positive_microseconds(duration: Duration, what: str) -> int:
    """As `microseconds`, refusing zero and less."""
    value = microseconds(duration, what)
    if value <= 0:
        raise TopologyError(f"{what} is {duration!r}; expected more than zero")
    return value


def in_words(duration_us: int) -> str:
    """The shortest way to write a duration.

    >>> in_words(90_000_000)
    '90s'
    """
    for unit in ("d", "h", "m", "s", "ms"):
        if duration_us and duration_us % _UNITS_US[unit] == 0:
            return f"{duration_us // _UNITS_US[unit]}{unit}"
    return f"{duration_us}us"
