"""Keys as small integers: encoded once per batch, so that every operator that reads it groups by integers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from resurge.operators.columns import columns_of, gathered, taken
from resurge.operators.hashing import Hashes, hash_rows

Codes = npt.NDArray[np.int64]
MOST_CODES = 2**63 - 1


class Coded(NamedTuple):
    """One code per row, and the key that each code stands for; codes are in the order of the keys' hashes."""

    codes: Codes
    keys: pl.DataFrame
    hashes: Hashes


def canonical(frame: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """The rows with one form of each key: -0.0 is 0.0, and every NaN is the same, as in Spark."""
    floats = [name for name in key if frame.schema[name].is_float()]
    if not floats or not frame.height:
        return frame
    return frame.with_columns(
        pl.when(pl.col(name) == 0)
        .then(0.0)
        .when(pl.col(name).is_nan())
        .then(float("nan"))
        .otherwise(pl.col(name))
        .cast(frame.schema[name])
        .alias(name)
        for name in floats
    )


def coded(frame: pl.DataFrame, key: Sequence[str]) -> Coded:
    """Number the distinct keys of a table."""
    hashes = hash_rows(frame, key)
    # Rows of one key may come in any order: the quickest sort will do, which is not stable.
    order = np.argsort(hashes)
    ordered = hashes[order]
    is_first = np.ones(order.size, dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    if not _are_same(columns_of(frame, key), order, is_first):
        return _coded_by_value(frame, key)
    codes = np.empty(order.size, dtype=np.int64)
    codes[order] = np.cumsum(is_first) - 1
    firsts = np.flatnonzero(is_first)
    return Coded(codes, taken(columns_of(frame, key), order[firsts]), ordered[firsts])


def _are_same(keys: pl.DataFrame, order: Codes, is_first: npt.NDArray[np.bool_]) -> bool:
    """Whether each row in this order has the key of the row before it, but for those that are the first of their key."""
    for column in keys.get_columns():
        values = gathered(column, order)
        here, before = values.slice(1), values.slice(0, max(0, order.size - 1))
        same = here.eq_missing(before) if column.null_count() else here == before
        if not (same.to_numpy() | is_first[1:]).all():
            return False
    return True


def _coded_by_value(frame: pl.DataFrame, key: Sequence[str]) -> Coded:
    """The same where different keys have one hash."""
    codes, keys = _distinct(frame, key)
    hashes = hash_rows(keys, key)
    order = np.argsort(hashes, kind="stable")
    places = np.empty(order.size, dtype=np.int64)
    places[order] = np.arange(order.size)
    return Coded(places[codes], keys[order], hashes[order])


def _distinct(frame: pl.DataFrame, key: Sequence[str]) -> tuple[Codes, pl.DataFrame]:
    """The distinct keys of a table in the order of their first rows, and each row's number among them."""
    codes, values = _column_codes(frame.get_column(key[0]))
    if len(key) == 1:
        return codes, pl.DataFrame({key[0]: values})
    columns = [(codes, values), *(_column_codes(frame.get_column(name)) for name in key[1:])]
    if not frame.height:
        return codes, frame.select(key)
    packed, distinct = codes, len(values)
    for column, kinds in columns[1:]:
        if distinct * len(kinds) > MOST_CODES:
            # Number only the combinations that occur: there are no more of them than rows.
            occurring, packed = np.unique(packed, return_inverse=True)
            packed, distinct = packed.astype(np.int64), occurring.size
        packed, distinct = packed * len(kinds) + column, distinct * len(kinds)
    firsts, codes = np.unique(packed, return_index=True, return_inverse=True)[1:]
    order = np.argsort(firsts)
    places = np.empty(order.size, dtype=np.int64)
    places[order] = np.arange(order.size)
    return places[codes], frame.select(key)[firsts[order]]


def _column_codes(column: pl.Series) -> tuple[Codes, pl.Series]:
    array: Any = column.to_arrow()
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    encoded = array.dictionary_encode(null_encoding="encode")
    values = pl.Series(column.name, encoded.dictionary).cast(column.dtype)
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), values
