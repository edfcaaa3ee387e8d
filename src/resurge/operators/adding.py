"""Adding an epoch's counts and sums to those in state: plain numbers need no expressions."""

import numpy as np
import polars as pl

from resurge.operators.aggregates import Aggregates, all_partial_columns, parts_of
from resurge.operators.columns import columns_of, taken
from resurge.operators.hashing import Hashes
from resurge.operators.state import KeyedTable
from resurge.operators.window_sums import Integers

_LARGE = 2**62
"""The sum of two smaller whole numbers fits."""


def added(
    table: KeyedTable, changed: pl.DataFrame, hashes: Hashes, known: Integers, aggregates: Aggregates
) -> list[pl.Series] | None:
    """The parts of all rows, which have these hashes, with those in state added where a row's key may be known there.

    None where some part is no count or sum of plain numbers, or a whole number might not fit.
    """
    if not _are_sums(changed, aggregates):
        return None
    names = all_partial_columns(aggregates)
    keys = columns_of(changed, table.spec.key)
    if known.size < changed.height:
        keys, hashes = taken(keys, known), hashes[known]
    older = table.numbers(keys, names, hashes)
    made = []
    for name, old in zip(names, older, strict=True):
        values = changed.get_column(name).to_numpy().copy()
        if values.dtype == np.int64 and max(_largest(values), _largest(old)) >= _LARGE:
            return None
        values[known] = old + values[known]
        made.append(pl.Series(name, values))
    return made


def _are_sums(parts: pl.DataFrame, aggregates: Aggregates) -> bool:
    return all(
        part.kind in ("count", "sum") and parts.schema[part.name] in (pl.Int64, pl.Float64) for part in parts_of(aggregates)
    )


def _largest(values: Integers) -> int:
    return max(-int(values.min()), int(values.max())) if values.size else 0
