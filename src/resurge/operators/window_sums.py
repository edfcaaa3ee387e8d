"""From panes to windows, in integers: each pane's parts are added to every window that it belongs to.

A key and a window make one integer. Where these are dense enough, sums are counted into one array (several times quicker than
grouping); else, and for parts that are not sums, rows are grouped.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from resurge.operators.aggregates import Aggregates, all_partial_columns, merge_expressions, parts_of
from resurge.operators.coding import MOST_CODES

_CODE = "__code"
_ROWS = "count()"
MOST_CELLS = 1 << 23
MOST_CELLS_PER_ROW = 64

Integers = npt.NDArray[np.int64]


class Windowed(NamedTuple):
    """Rows of key code, window number and parts."""

    codes: Integers
    windows: Integers
    parts: pl.DataFrame


def windowed(
    panes: pl.DataFrame,
    pane_us: Integers,
    codes: Integers,
    size_us: int,
    slide_us: int,
    open_from: int | None,
    aggregates: Aggregates,
) -> Windowed:
    """The parts of every key and open window; a window's number is its start divided by the slide."""
    row, window = _hits(pane_us, size_us, slide_us, open_from)
    first, numbers = int(window.min()) if window.size else 0, None
    width = int(window.max()) - first + 1 if window.size else 1
    if (int(codes.max()) + 1) * width > MOST_CODES:
        # Too far apart in time for one integer: number only the windows that occur.
        numbers, window = np.unique(window, return_inverse=True)
        first, width = 0, numbers.size
    key = codes[row] * width + (window - first)
    cells = (int(codes.max()) + 1) * width
    if _adds_up(panes, aggregates) and cells <= min(MOST_CELLS, MOST_CELLS_PER_ROW * max(1, key.size)):
        found, parts = _counted(panes, row, key, cells, aggregates)
    else:
        found, parts = _grouped(panes, row, key, aggregates)
    windows = found % width + first
    return Windowed(found // width, windows if numbers is None else numbers[windows], parts)


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


def _adds_up(panes: pl.DataFrame, aggregates: Aggregates) -> bool:
    """Whether every part is a sum of numbers that floating point holds exactly, or of floating-point numbers."""
    kinds = [(part.kind, panes.schema[part.name]) for part in parts_of(aggregates)]
    exact = all(
        kind == pl.Float64 or (kind == pl.Int64 and _is_small(panes.get_column(part.name)))
        for part, (_, kind) in zip(parts_of(aggregates), kinds, strict=True)
    )
    return exact and all(name in ("count", "sum") for name, _ in kinds)


def _is_small(column: pl.Series) -> bool:
    values = column.to_numpy()
    # Python's integers: the absolute value of the least 64-bit integer is no 64-bit integer.
    return values.size == 0 or max(-int(values.min()), int(values.max())) * values.size < 2**53


def _counted(
    panes: pl.DataFrame, row: Integers, key: Integers, cells: int, aggregates: Aggregates
) -> tuple[Integers, pl.DataFrame]:
    present = np.bincount(key, weights=panes.get_column(_ROWS).to_numpy()[row], minlength=cells)
    found = np.flatnonzero(present)
    columns = []
    for name in all_partial_columns(aggregates):
        values = panes.get_column(name)
        sums = present if name == _ROWS else np.bincount(key, weights=values.to_numpy()[row], minlength=cells)
        columns.append(pl.Series(name, sums[found]).cast(values.dtype))
    return found, pl.DataFrame(columns)


def _grouped(panes: pl.DataFrame, row: Integers, key: Integers, aggregates: Aggregates) -> tuple[Integers, pl.DataFrame]:
    hits = panes.select(all_partial_columns(aggregates))[row].with_columns(pl.Series(_CODE, key))
    grouped = hits.group_by(_CODE, maintain_order=True).agg(merge_expressions(aggregates, panes.schema)).sort(_CODE)
    return grouped.get_column(_CODE).to_numpy(), grouped.drop(_CODE)
