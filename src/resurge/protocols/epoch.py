"""How much an epoch may take and when the next one begins. Pure: time comes in as an argument."""

from collections.abc import Mapping
from typing import NamedTuple

FIRST_ROWS = 20_000
TARGET_WITHOUT_INTERVAL_S = 2.0
_SHARE_OF_INTERVAL = 0.9
_SHORT_SHARE_OF_TARGET = 0.8
_FULL_SHARE_OF_LIMIT = 0.9
_LEAST_GROWTH, _MOST_GROWTH, _MOST_SHRINKING = 1.25, 2.0, 0.5
_PROBED_ROWS, _PROBING_GROWTH = 100, 1.1
_WEIGHT_OF_NEWEST = 0.3
_LEAST_SHARE_OF_ROWS = 0.05
_LEAST_IDLE_S = 0.005


class Pace(NamedTuple):
    """What earlier epochs have shown: moving averages of rows and seconds, and how many rows an epoch may have by now.

    `normal_s` is how long epochs took when every partition was live. The first epoch of a driver starts worker processes and
    compiles queries: it counts as one that took long, but says nothing about what rows cost.
    """

    rows: float = 0.0
    took_s: float = 0.0
    rows_squared: float = 0.0
    rows_took_s: float = 0.0
    epochs: int = 0
    normal_s: float = 0.0
    limit_rows: int = FIRST_ROWS


def observed(pace: Pace, rows: int, took_s: float, interval_s: float, *, is_whole: bool = True) -> Pace:
    """The pace after one more epoch: an epoch that was too long shrinks the limit, a full one that was short makes it grow."""
    if rows <= 0 or took_s <= 0:
        return pace
    # The second epoch replaces what the cold first one showed.
    weight = max(_WEIGHT_OF_NEWEST, 1 / max(1, pace.epochs))

    def averaged(known: float, newest: float) -> float:
        return (1 - weight) * known + weight * newest

    known = Pace(
        averaged(pace.rows, rows),
        averaged(pace.took_s, took_s),
        averaged(pace.rows_squared, rows * rows),
        averaged(pace.rows_took_s, rows * took_s),
        pace.epochs + 1,
        averaged(pace.normal_s, took_s) if is_whole else pace.normal_s,
        pace.limit_rows,
    )
    if pace.epochs == 0:
        return known
    return known._replace(limit_rows=_next_limit(known, rows, took_s, interval_s))


def costs(pace: Pace) -> tuple[float, float]:
    """Seconds that every epoch takes, and seconds per row on top: a line through what was observed."""
    per_row = pace.took_s / pace.rows
    if _is_spread(pace):
        slope = (pace.rows_took_s - pace.rows * pace.took_s) / (pace.rows_squared - pace.rows**2)
        per_row = min(max(slope, _LEAST_SHARE_OF_ROWS * per_row), per_row)
    return max(0.0, pace.took_s - per_row * pace.rows), per_row


def _is_spread(pace: Pace) -> bool:
    """Whether epochs were of different sizes, so that the cost of a row can be told from that of an epoch."""
    return pace.rows_squared - pace.rows**2 > (0.01 * pace.rows) ** 2


def _next_limit(pace: Pace, rows: int, took_s: float, interval_s: float) -> int:
    """What fits into the interval, approached in bounded steps; an epoch that fits never makes the limit smaller.

    Where an epoch costs half its interval even without rows, smaller epochs would only make it worse: then rows may take as
    long again as that. Without an interval no epoch is too long: the limit only bounds what has to fit into memory, and stays at
    what a run begins with or above.
    """
    fixed_s, per_row_s = costs(pace)
    target_s = max((interval_s or TARGET_WITHOUT_INTERVAL_S) * _SHARE_OF_INTERVAL, 2 * fixed_s)
    fitting = (target_s - fixed_s) / per_row_s
    limit = pace.limit_rows
    # Where all epochs were of one size, another size is tried, to learn what a row costs.
    is_known = _is_spread(pace)
    if took_s > target_s:
        if rows <= (_PROBED_ROWS if interval_s else FIRST_ROWS) and not is_known:
            return max(limit, 2 * rows)
        most = limit if is_known else rows / _PROBING_GROWTH
        fewest = 1 if interval_s else FIRST_ROWS
        return max(fewest, int(min(most, max(fitting, rows * _MOST_SHRINKING))))
    if rows < limit * _FULL_SHARE_OF_LIMIT:
        return limit
    most = limit * min(_MOST_GROWTH, target_s / took_s)
    if took_s < target_s * _SHORT_SHARE_OF_TARGET:
        least = limit * _LEAST_GROWTH
    else:
        least = limit if is_known else limit * _PROBING_GROWTH
    return int(max(least, min(fitting, most))) + 1


def row_limit(pace: Pace, configured: int | None) -> int:
    """How many rows the next epoch may take: what the pace allows by now, and what the user allows."""
    return pace.limit_rows if configured is None else min(pace.limit_rows, configured)


def shares(limit: int, demands: Mapping[str, int | None]) -> dict[str, int]:
    """A limit divided among sources: each gets what it may need (None: as much as it can get), the rest evenly, at least a row.

    >>> shares(900, {"busy": None, "calm": 100, "brisk": None})
    {'busy': 400, 'calm': 100, 'brisk': 400}
    """
    allotted: dict[str, int] = {}
    left = limit
    bounded = sorted((demand, name) for name, demand in demands.items() if demand is not None)
    waiting = len(demands)
    for demand, name in bounded:
        allotted[name] = max(1, min(demand, left // waiting))
        left -= allotted[name]
        waiting -= 1
    greedy = [name for name, demand in demands.items() if demand is None] or list(demands)
    for index, name in enumerate(greedy):
        part = max(0, left) // (len(greedy) - index)
        allotted[name] = max(1, allotted.get(name, 0) + part)
        left -= part
    return {name: allotted[name] for name in demands}


def is_full(rows: int, limit: int | None) -> bool:
    """Whether an epoch took all that it might: more is waiting, so that the next one does not wait for its interval."""
    return limit is not None and rows >= limit


def wait_s(started_s: float, now_s: float, interval_s: float) -> float:
    """How long to wait before the next epoch begins."""
    return max(0.0, started_s + interval_s - now_s)


def idle_wait_s(last_s: float, most_s: float) -> float:
    """How long to wait before sources that had nothing are asked again: twice as long as the last time, within bounds.

    >>> [idle_wait_s(last_s, 0.1) for last_s in (0.0, 0.005, 0.04, 0.08, 1.0)]
    [0.005, 0.01, 0.08, 0.1, 0.1]
    """
    return min(most_s, max(_LEAST_IDLE_S, 2 * last_s))
