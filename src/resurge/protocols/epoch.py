"""How much an epoch may take and when the next one begins. Pure: time comes in as an argument."""

from typing import NamedTuple

_SHARE_OF_INTERVAL = 0.9
_WEIGHT_OF_NEWEST = 0.4


class Pace(NamedTuple):
    """What earlier epochs have shown: rows per second of work, and whether input has ever outrun it."""

    rows_per_s: float | None = None
    is_pressed: bool = False


def observed(pace: Pace, rows: int, took_s: float, interval_s: float) -> Pace:
    """The pace after one more epoch; a job is pressed from the first epoch that outlasts its interval."""
    if rows <= 0 or took_s <= 0:
        return pace
    newest = rows / took_s
    rate = newest if pace.rows_per_s is None else (1 - _WEIGHT_OF_NEWEST) * pace.rows_per_s + _WEIGHT_OF_NEWEST * newest
    return Pace(rate, pace.is_pressed or (interval_s > 0 and took_s > interval_s))


def row_limit(pace: Pace, interval_s: float, configured: int | None) -> int | None:
    """How many rows the next epoch may take: what fits into its interval once the job is pressed, and what the user allows."""
    if not pace.is_pressed or pace.rows_per_s is None or interval_s <= 0:
        return configured
    fitting = max(1, int(pace.rows_per_s * interval_s * _SHARE_OF_INTERVAL))
    return fitting if configured is None else min(fitting, configured)


def wait_s(started_s: float, now_s: float, interval_s: float) -> float:
    """How long to wait before the next epoch begins."""
    return max(0.0, started_s + interval_s - now_s)
