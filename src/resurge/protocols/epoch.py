"""How much an epoch may take and when the next one begins. Pure: time comes in as an argument."""

from typing import NamedTuple

_SHARE_OF_INTERVAL = 0.9
_WEIGHT_OF_NEWEST = 0.3
_LEAST_SHARE_OF_ROWS = 0.05


class Pace(NamedTuple):
    """What earlier epochs have shown, as moving averages of rows and seconds, and whether input has ever outrun the job.

    `normal_s` is how long epochs took when every partition was live.
    """

    rows: float = 0.0
    took_s: float = 0.0
    rows_squared: float = 0.0
    rows_took_s: float = 0.0
    epochs: int = 0
    is_pressed: bool = False
    normal_s: float = 0.0


def observed(pace: Pace, rows: int, took_s: float, interval_s: float, *, is_whole: bool = True) -> Pace:
    """The pace after one more epoch; a job is pressed from the first epoch that outlasts its interval."""
    if rows <= 0 or took_s <= 0:
        return pace
    weight = max(_WEIGHT_OF_NEWEST, 1 / (pace.epochs + 1))

    def averaged(known: float, newest: float) -> float:
        return (1 - weight) * known + weight * newest

    return Pace(
        averaged(pace.rows, rows),
        averaged(pace.took_s, took_s),
        averaged(pace.rows_squared, rows * rows),
        averaged(pace.rows_took_s, rows * took_s),
        pace.epochs + 1,
        pace.is_pressed or (interval_s > 0 and took_s > interval_s),
        averaged(pace.normal_s, took_s) if is_whole else pace.normal_s,
    )


def costs(pace: Pace) -> tuple[float, float]:
    """Seconds that every epoch takes, and seconds per row on top: a line through what was observed."""
    per_row = pace.took_s / pace.rows
    spread = pace.rows_squared - pace.rows**2
    if spread > (0.01 * pace.rows) ** 2:
        slope = (pace.rows_took_s - pace.rows * pace.took_s) / spread
        per_row = min(max(slope, _LEAST_SHARE_OF_ROWS * per_row), per_row)
    return max(0.0, pace.took_s - per_row * pace.rows), per_row


def row_limit(pace: Pace, interval_s: float, configured: int | None) -> int | None:
    """How many rows the next epoch may take: what fits into its interval once the job is pressed, and what the user allows.

    Where an epoch costs half its interval even without rows, smaller epochs would only make it worse: then rows may take as
    long again as that.
    """
    if not pace.is_pressed or pace.rows <= 0 or interval_s <= 0:
        return configured
    fixed_s, per_row_s = costs(pace)
    left_s = max(interval_s * _SHARE_OF_INTERVAL - fixed_s, fixed_s)
    fitting = max(1, int(left_s / per_row_s))
    return fitting if configured is None else min(fitting, configured)


def is_full(rows: int, limit: int | None) -> bool:
    """Whether an epoch took all that it might: more is waiting, so that the next one does not wait for its interval."""
    return limit is not None and rows >= limit


def wait_s(started_s: float, now_s: float, interval_s: float) -> float:
    """How long to wait before the next epoch begins."""
    return max(0.0, started_s + interval_s - now_s)
