"""Columns and rows of tables, without the cost of an expression."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl


def columns_of(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Some columns; several times quicker than `select`."""
    return pl.DataFrame([frame.get_column(name) for name in names])


def taken(frame: pl.DataFrame, positions: npt.NDArray[Any]) -> pl.DataFrame:
    """The rows at these positions."""
    return frame[pl.Series(positions.astype(np.uint32))]


def same_keys(left: pl.DataFrame, right: pl.DataFrame, key: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Which rows of two tables have the same key; nulls are equal."""
    same = np.ones(left.height, dtype=np.bool_)
    for column in key:
        mine, other = left.get_column(column), right.get_column(column)
        # Comparing is quicker where no null has to equal another.
        has_nulls = mine.null_count() or other.null_count()
        same &= (mine.eq_missing(other) if has_nulls else mine == other).to_numpy()
    return same
