"""From panes to windows, in integers: each pane's parts are added to every window that it belongs to.

Whole numbers are summed up over time once for all windows that read a batch; a window is then a difference of two of these
sums. Floating-point numbers are added one by one in the order of the rows, so that a key's sum does not depend on which other
keys are in the batch.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from resurge.operators.aggregates import Aggregates, Part, merge_expressions, parts_of
from resurge.operators.coding import MOST_CODES, Coded
from resurge.operators.columns import taken
from resurge.operators.hashing import Hashes

_CODE = "__code"
_ROWS = "count()"
MOST_CELLS = 1 << 23
MOST_CELLS_PER_ROW = 8
ROWS_PER_PANE = 8
MOST_PATTERNS = 8
"""So many results are kept for other windows while a batch lasts; each may be larger than the batch."""

Integers = npt.NDArray[np.int64]


class Windowed(NamedTuple):
    """Rows of key, window number and parts, by the keys' hashes and then by window."""

    keys: list[pl.Series]
    hashes: Hashes
    windows: Integers
    parts: list[pl.Series]


class Ordered(NamedTuple):
    """Rows by key and then by time: their places, codes and numbers of panes, and where each key begins."""

    places: Integers
    codes: Integers
    panes: Integers
    begins: Integers


@dataclass(frozen=True)
class Panes:
    """The parts of a batch per key and pane; rows without time are left out."""

    parts: pl.DataFrame
    pane_us: Integers
    codes: Integers
    keys: Coded

    @cached_property
    def times_us(self) -> Integers:
        """The panes that occur, in order."""
        # To sort is quicker than the hash table of np.unique.
        times = np.sort(self.pane_us)
        is_first = np.ones(times.size, dtype=np.bool_)
        np.not_equal(times[1:], times[:-1], out=is_first[1:])
        found: Integers = times[is_first]
        return found

    @cached_property
    def _totals(self) -> dict[str, Integers]:
        return {}

    @cached_property
    def _running(self) -> dict[str, Integers]:
        return {}

    @cached_property
    def _shared(self) -> dict[Hashable, Windowed]:
        return {}

    def shared(self, pattern: Hashable, make: Callable[[], Windowed]) -> Windowed:
        """What windows that divide the panes in the same way have in common; the last few are kept."""
        found = self._shared.pop(pattern, None) or make()
        self._shared[pattern] = found
        if len(self._shared) > MOST_PATTERNS:
            self._shared.pop(next(iter(self._shared)))
        return found

    def of_codes(self, codes: Integers, windows: Integers, parts: Iterable[pl.Series]) -> Windowed:
        """The result for keys of these codes."""
        return Windowed(taken(self.keys.keys, codes).get_columns(), self.keys.hashes[codes], windows, list(parts))

    @cached_property
    def numbers(self) -> Integers:
        """The number of each row's pane among those that occur."""
        times = self.times_us
        if times.size > self.pane_us.size // ROWS_PER_PANE:
            return np.searchsorted(times, self.pane_us)
        step = int(np.gcd.reduce(np.diff(times))) or 1
        width = (int(times[-1]) - int(times[0])) // step + 1
        if width > self.pane_us.size:
            return np.searchsorted(times, self.pane_us)
        # Few panes, evenly apart: a table of them is quicker than a search.
        numbers: Integers = np.zeros(width, dtype=np.int64)
        numbers[(times - times[0]) // step] = np.arange(times.size)
        found: Integers = numbers[(self.pane_us - times[0]) // step]
        return found

    @cached_property
    def ordered(self) -> "Ordered":
        """The rows by key and then by time; computed once for all windows."""
        # Rows of one key and pane may come in any order, because their whole numbers are summed up.
        order = np.argsort(self.codes * self.times_us.size + self.numbers)
        codes = self.codes[order]
        return Ordered(order, codes, self.numbers[order], np.flatnonzero(np.diff(codes, prepend=-1)))

    def running(self, part: str) -> Integers:
        """The sums of a part over the rows before each one, in that order, and over all; computed once for all windows."""
        if part not in self._running:
            sums = np.zeros(self.codes.size + 1, dtype=np.int64)
            np.cumsum(self.parts.get_column(part).to_numpy()[self.ordered.places], out=sums[1:])
            self._running[part] = sums
        return self._running[part]

    def is_dense(self, size_us: int, slide_us: int) -> bool:
        """Whether tables of all keys and panes, and of all keys and windows, are not much larger than the rows."""
        windows = (int(self.times_us[-1]) - int(self.times_us[0]) + size_us) // slide_us + 1
        cells = (int(self.codes.max()) + 1) * max(self.times_us.size + 1, windows)
        return cells <= min(MOST_CELLS, MOST_CELLS_PER_ROW * self.codes.size)

    @cached_property
    def rows_per_time(self) -> Integers:
        """How many rows each pane has."""
        rows = np.bincount(self.numbers, weights=self.parts.get_column(_ROWS).to_numpy())
        return rows.astype(np.int64)

    @cached_property
    def whole(self) -> dict[Part, bool]:
        """Which parts are sums of whole numbers that floating point holds exactly, as far as was asked."""
        return {}

    def is_whole(self, part: Part) -> bool:
        """Whether a part is a sum of whole numbers that floating point holds exactly; looked at once for all windows."""
        if part not in self.whole:
            self.whole[part] = _is_whole(part, self.parts)
        return self.whole[part]

    def totals(self, part: str) -> Integers:
        """For each pane and key, the sum over all earlier panes; computed once for all windows."""
        if part not in self._totals:
            count, width = int(self.codes.max()) + 1, self.times_us.size
            cells = self.numbers * count + self.codes
            sums = np.bincount(cells, weights=self.parts.get_column(part).to_numpy(), minlength=width * count)
            totals = np.zeros((width + 1, count), dtype=np.int64)
            np.cumsum(sums.astype(np.int64).reshape(width, count), axis=0, out=totals[1:])
            self._totals[part] = totals
        return self._totals[part]


def windowed(panes: Panes, size_us: int, slide_us: int, open_from: int | None, aggregates: Aggregates) -> Windowed:
    """The parts of every key and open window; a window's number is its start divided by the slide."""
    parts = parts_of(aggregates)
    if all(panes.is_whole(part) for part in parts):
        if panes.is_dense(size_us, slide_us):
            return _from_totals(panes, size_us, slide_us, open_from, parts)
        return _from_order(panes, size_us, slide_us, open_from, parts)
    row, window = _hits(panes.pane_us, size_us, slide_us, open_from)
    first, numbers = int(window.min()) if window.size else 0, None
    width = int(window.max()) - first + 1 if window.size else 1
    if (int(panes.codes.max()) + 1) * width > MOST_CODES:
        # Too far apart in time for one integer: number only the windows that occur.
        numbers, window = np.unique(window, return_inverse=True)
        first, width = 0, numbers.size
    found, place = np.unique(panes.codes[row] * width + (window - first), return_inverse=True)
    summed = merged_parts(panes.parts[row], place.astype(np.int64), found.size, aggregates)
    windows = found % width + first
    return panes.of_codes(found // width, windows if numbers is None else numbers[windows], summed.get_columns())


def _from_totals(panes: Panes, size_us: int, slide_us: int, open_from: int | None, parts: list[Part]) -> Windowed:
    times = panes.times_us
    first = (int(times[0]) - size_us) // slide_us + 1
    if open_from is not None:
        first = max(first, -(-open_from // slide_us))
    windows = np.arange(first, int(times[-1]) // slide_us + 1)
    begins, ends = (np.searchsorted(times, windows * slide_us + offset) for offset in (0, size_us))
    present = _differences(panes.totals(_ROWS), begins, ends)
    codes, number = np.nonzero(present)
    columns = []
    for part in parts:
        sums = present if part.name == _ROWS else _differences(panes.totals(part.name), begins, ends)
        columns.append(pl.Series(part.name, sums[codes, number]))
    return panes.of_codes(codes, windows[number], columns)


def _from_order(panes: Panes, size_us: int, slide_us: int, open_from: int | None, parts: list[Part]) -> Windowed:
    """Windows that divide the panes of a batch in the same way differ in their number only; many large ones do."""
    times = panes.times_us
    first, last = (times - size_us) // slide_us + 1, times // slide_us
    if open_from is not None:
        first = np.maximum(first, -(-open_from // slide_us))
        # A pane all of whose windows are closed is in none, and the next one's are all new.
        last = np.maximum(last, first - 1)
    origin = int(first[0])
    first, last = first - origin, last - origin
    pattern = first.tobytes(), last.tobytes(), tuple(part.name for part in parts)
    found = panes.shared(pattern, lambda: _in_order(panes, first, last, parts))
    return found._replace(windows=found.windows + origin)


def _in_order(panes: Panes, first: Integers, last: Integers, parts: list[Part]) -> Windowed:
    """Rows in order of key and time: a window takes neighbours, and windows begin and end with rows in the order of windows.

    `first` and `last` have the windows of each pane.
    """
    rows = panes.ordered
    first, last = first[rows.panes], last[rows.panes]
    begun = last[:-1] + 1
    beginning, ending = last - first + 1, last - first + 1
    np.subtract(last[1:], np.maximum(first[1:], begun) - 1, out=beginning[1:])
    np.subtract(np.minimum(begun, first[1:]), first[:-1], out=ending[:-1])
    # A key's first row begins all its windows, and its last row ends all of them.
    alone = rows.begins[1:]
    beginning[alone] = last[alone] - first[alone] + 1
    ending[alone - 1] = last[alone - 1] - first[alone - 1] + 1
    starts, stops = (np.repeat(np.arange(rows.codes.size), counts) for counts in (beginning, ending))
    windows = np.arange(starts.size) + (last + 1 - np.cumsum(beginning))[starts]
    sums = [panes.running(part.name) for part in parts]
    columns = [pl.Series(part.name, sum_[1:][stops] - sum_[starts]) for part, sum_ in zip(parts, sums, strict=True)]
    return panes.of_codes(rows.codes[starts], windows, columns)


def _differences(totals: Integers, begins: Integers, ends: Integers) -> Integers:
    return np.ascontiguousarray((totals[ends] - totals[begins]).T)


def _hits(pane_us: Integers, size_us: int, slide_us: int, open_from: int | None) -> tuple[Integers, Integers]:
    """Each row with each open window that it belongs to."""
    last = pane_us // slide_us
    offset = pane_us - last * slide_us
    least = None if open_from is None else -(-open_from // slide_us)
    rows, windows = [], []
    for back in range(-(-size_us // slide_us)):
        inside = offset + back * slide_us < size_us
        if least is not None:
            inside &= last - back >= least
        chosen = np.flatnonzero(inside)
        rows.append(chosen)
        windows.append(last[chosen] - back)
    return np.concatenate(rows), np.concatenate(windows)


def merged_parts(parts: pl.DataFrame, codes: Integers, count: int, aggregates: Aggregates) -> pl.DataFrame:
    """The parts of the rows of each code, merged; every code from 0 up to the count occurs."""
    columns: dict[str, pl.Series] = {}
    others: list[pl.Expr] = []
    for part, merge in zip(parts_of(aggregates), merge_expressions(aggregates, parts.schema), strict=True):
        values = parts.get_column(part.name)
        if part.kind == "sum" and values.dtype == pl.Float64:
            columns[part.name] = pl.Series(part.name, np.bincount(codes, weights=values.to_numpy(), minlength=count))
        elif _is_whole(part, parts):
            sums = np.bincount(codes, weights=values.to_numpy(), minlength=count)
            columns[part.name] = pl.Series(part.name, sums.astype(np.int64))
        else:
            others.append(merge)
    if others:
        grouped = parts.with_columns(pl.Series(_CODE, codes)).group_by(_CODE, maintain_order=True).agg(others).sort(_CODE)
        columns |= {column.name: column for column in grouped.drop(_CODE).get_columns()}
    return pl.DataFrame([columns[part.name] for part in parts_of(aggregates)])


def _is_whole(part: Part, parts: pl.DataFrame) -> bool:
    """Whether a part is a sum of whole numbers that floating point holds exactly."""
    return part.kind in ("count", "sum") and parts.schema[part.name] == pl.Int64 and _is_small(parts.get_column(part.name))


def _is_small(column: pl.Series) -> bool:
    values = column.to_numpy()
    # Python's integers: the absolute value of the least 64-bit integer is no 64-bit integer.
    return values.size == 0 or max(-int(values.min()), int(values.max())) * values.size < 2**53
