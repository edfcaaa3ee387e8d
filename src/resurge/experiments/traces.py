"""Failures and start-up times of real machines, read from files; a file that does not fit is refused in one line."""

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

from resurge.errors import ProblemError
from resurge.planning.problem_files import finite_non_negative, read_text, shown

FAILURE_TRACE = "failure trace"
ARRIVALS = "file of start-up times"
_COLUMNS = ("node", "start", "end")
_CHANGES = ("add", "remove")


@dataclass(frozen=True)
class Failure:
    """A machine failed; `repaired_s` is when it was back, where the trace says so. Only differences of times mean something."""

    node: str
    at_s: float
    repaired_s: float | None = None


@dataclass(frozen=True)
class Change:
    """A machine was added to a cluster, or taken from it."""

    node: str
    at_s: float
    is_added: bool


def failures(path: Path) -> list[Failure]:
    """The failures of a trace in order of time: a table of failures and repairs, or the changes of a spot cluster."""
    first = next(iter(_rows(path)), (0, []))[1]
    if set(_COLUMNS) <= set(first):
        found = repaired_failures(path)
    elif len(first) == 3 and first[1] in _CHANGES:
        found = [Failure(change.node, change.at_s) for change in spot_changes(path) if not change.is_added]
    else:
        raise ProblemError(
            f"{FAILURE_TRACE} {str(path)!r} begins with {shown(','.join(first))}; expected a header with the columns "
            "node, start and end, or rows of milliseconds, add or remove, and a node"
        )
    if not found:
        raise ProblemError(f"{FAILURE_TRACE} {str(path)!r} has no failure; expected at least one")
    return found


def repaired_failures(path: Path) -> list[Failure]:
    """A table with the columns node, start and end (ISO 8601), and maybe system: node numbers are those of one system."""
    (_, header), *rows = _rows(path) or [(1, [""])]
    places = {name: place for place, name in enumerate(header)}
    missing = [name for name in _COLUMNS if name not in places]
    if missing:
        raise ProblemError(f"{FAILURE_TRACE} {str(path)!r} has no column {missing[0]!r}; expected {', '.join(_COLUMNS)}")
    found = []
    for line, row in rows:
        if len(row) != len(header):
            raise ProblemError(f"{FAILURE_TRACE} {str(path)!r}, line {line}: expected {len(header)} fields, got {len(row)}")
        node = "-".join(row[places[name]] for name in ("system", "node") if name in places)
        start_s, end_s = (_moment_s(row[places[name]], path, line) for name in ("start", "end"))
        found.append(Failure(node, start_s, max(start_s, end_s)))
    return sorted(found, key=lambda failure: failure.at_s)


def spot_changes(path: Path) -> list[Change]:
    """Rows of milliseconds, `add` or `remove`, and a node; no header."""
    found = []
    for line, row in _rows(path):
        if len(row) != 3 or row[1] not in _CHANGES:
            raise ProblemError(
                f"{FAILURE_TRACE} {str(path)!r}, line {line}: expected milliseconds, add or remove, and a node, "
                f"got {shown(','.join(row))}"
            )
        at_ms = _number(row[0], f"{FAILURE_TRACE} {str(path)!r}, line {line}: the time")
        found.append(Change(row[2], at_ms / 1000, row[1] == "add"))
    return sorted(found, key=lambda change: change.at_s)


def arrival_times_s(path: Path) -> list[float]:
    """Start-up times of machines: the column `seconds` of a table, or one number a line."""
    rows = _rows(path, ARRIVALS)
    place = 0
    if rows and "seconds" in rows[0][1]:
        place = rows.pop(0)[1].index("seconds")
    field = f"{ARRIVALS} {str(path)!r}, line"
    found = [_number(row[place] if place < len(row) else "", f"{field} {line}: the seconds") for line, row in rows]
    if not found:
        raise ProblemError(f"{ARRIVALS} {str(path)!r} has no time; expected a column called seconds, or one number a line")
    return found


def drawn_arrivals_s(times_s: Sequence[float], count: int, rng: random.Random) -> list[float]:
    """Some of the known start-up times, earliest first."""
    return sorted(rng.choice(times_s) for _ in range(count))


def bursts(found: Sequence[Failure], *, most: int, close_s: float, gap_s: float) -> list[list[Failure]]:
    """Windows of a trace that begin with the failures of two nodes close together, and go on with those that follow soon.

    `close_s` lies between the first two at most, `gap_s` between any two neighbours. A window has `most` nodes at most, each
    once; windows may overlap.

    >>> found = [Failure("a", 0), Failure("b", 60), Failure("c", 500), Failure("d", 9999)]
    >>> [[failure.node for failure in burst] for burst in bursts(found, most=4, close_s=60, gap_s=600)]
    [['a', 'b', 'c']]
    """
    windows = [_window(found, start, most, gap_s) for start in range(len(found))]
    return [window for window in windows if len(window) > 1 and window[1].at_s - window[0].at_s <= close_s]


def _window(found: Sequence[Failure], start: int, most: int, gap_s: float) -> list[Failure]:
    window = [found[start]]
    for failure in found[start + 1 : start + most]:
        if failure.at_s - window[-1].at_s > gap_s or any(known.node == failure.node for known in window):
            break
        window.append(failure)
    return window


def _rows(path: Path, kind: str = FAILURE_TRACE) -> list[tuple[int, list[str]]]:
    """The rows that are not empty, with the numbers of their lines."""
    reader = csv.reader(StringIO(read_text(path, kind, "CSV")))
    try:
        return [(reader.line_num, [field.strip() for field in row]) for row in reader if any(row)]
    except csv.Error as error:
        raise ProblemError(f"{kind} {str(path)!r} is not CSV: {error} at line {reader.line_num}") from None


def _moment_s(text: str, path: Path, line: int) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ProblemError(
            f"{FAILURE_TRACE} {str(path)!r}, line {line}: expected a time such as 2002-05-06T08:45:00, got {shown(text)}"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _number(text: str, field: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ProblemError(f"{field} must be a number, got {shown(text)}") from None
    return finite_non_negative(number, field)
