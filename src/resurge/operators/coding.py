"""Keys as small integers: encoded once per batch, so that every operator that reads it groups by integers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Codes = npt.NDArray[np.int64]


class Coded(NamedTuple):
    """One code per row, and the key that each code stands for."""

    codes: Codes
    keys: pl.DataFrame


def coded(frame: pl.DataFrame, key: Sequence[str]) -> Coded:
    """Number the distinct keys of a table."""
    codes, values = _column_codes(frame.get_column(key[0]))
    if len(key) == 1:
        return Coded(codes, pl.DataFrame({key[0]: values}))
    columns = [(codes, values), *(_column_codes(frame.get_column(name)) for name in key[1:])]
    packed = columns[0][0]
    for column, kinds in columns[1:]:
        packed, distinct = packed * len(kinds) + column, len(kinds)
        if distinct == 0:
            return Coded(packed, frame.select(key).clear())
    firsts, codes = np.unique(packed, return_index=True, return_inverse=True)[1:]
    return Coded(codes.astype(np.int64), frame.select(key)[firsts])


def _column_codes(column: pl.Series) -> tuple[Codes, pl.Series]:
    array: Any = column.to_arrow()
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    encoded = array.dictionary_encode(null_encoding="encode")
    values = pl.Series(column.name, encoded.dictionary).cast(column.dtype)
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), values
