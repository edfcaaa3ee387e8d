"""Columns and rows of tables, without the cost of an expression."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

Places = npt.NDArray[np.int64]


def columns_of(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Some columns; several times quicker than `select`."""
    return pl.DataFrame([frame.get_column(name) for name in names])


def taken(frame: pl.DataFrame, positions: npt.NDArray[Any]) -> pl.DataFrame:
    """The rows at these positions."""
    return frame[pl.Series(positions.astype(np.uint32))]


def same_keys(
    left: pl.DataFrame, left_places: Places, right: pl.DataFrame, right_places: Places, key: tuple[str, ...]
) -> npt.NDArray[np.bool_]:
    """Which rows at some places of two tables have the same key; nulls are equal."""
    same = np.ones(left_places.size, dtype=np.bool_)
    for name in key:
        mine, other = left.get_column(name), right.get_column(name)
        if mine.dtype.is_integer() and not (mine.null_count() or other.null_count()):
            same &= mine.to_numpy().take(left_places) == other.to_numpy().take(right_places)
            continue
        mine, other = gathered(mine, left_places), gathered(other, right_places)
        # Comparing is quicker where no null has to equal another.
        has_nulls = mine.null_count() or other.null_count()
        same &= (mine.eq_missing(other) if has_nulls else mine == other).to_numpy()
    return same


def gathered(column: pl.Series, places: Places) -> pl.Series:
    """The values at these places; several times quicker than `gather`, which is an expression."""
    return column[pl.Series(places.astype(np.uint32))]
