"""Keys to 64-bit hashes, and hashes to key groups. Vectorised; the same on every node and in every replay."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

Hashes = npt.NDArray[np.uint64]

_SEED = 7
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_UPPER = np.uint64(0xFFFFFFFF00000000)


def hash_rows(frame: pl.DataFrame, key: Sequence[str]) -> Hashes:
    """One hash per row over the key columns, in their order."""
    mixed = np.zeros(frame.height, dtype=np.uint64)
    for column in key:
        # The same numbers as those of `Series.hash`, which is an expression and takes three times as long for a small table.
        hashed = pl.DataFrame([frame.get_column(column)]).hash_rows(_SEED).to_numpy()
        mixed = (mixed ^ hashed) * _MULTIPLIER
        mixed ^= mixed >> np.uint64(29)
    return mixed


def key_groups_of(hashes: Hashes, key_groups: int) -> npt.NDArray[np.int64]:
    """Each hash's key group: equal ranges of the upper half of the hash."""
    return ((hashes >> np.uint64(32)) * np.uint64(key_groups) >> np.uint64(32)).astype(np.int64)


def routed_hashes(routing: Hashes, whole: Hashes) -> Hashes:
    """Hashes that are ordered by the routing key first: its upper half decides the key group, the rest tells rows apart."""
    return (routing & _UPPER) | ((whole ^ routing) * _MULTIPLIER >> np.uint64(32))


def key_group_starts(key_groups: int) -> Hashes:
    """The lowest hash of each key group."""
    return np.array([-(-(group << 32) // key_groups) << 32 for group in range(key_groups)], dtype=np.uint64)


def key_group_ends(hashes: Hashes, key_groups: int) -> npt.NDArray[np.int64]:
    """Where each key group ends among ordered hashes."""
    return np.append(np.searchsorted(hashes, _starts(key_groups)[1:]), hashes.size).astype(np.int64)


@lru_cache(maxsize=8)
def _starts(key_groups: int) -> Hashes:
    return key_group_starts(key_groups)


def fingerprint() -> str:
    """What the hash gives for a few fixed keys; a job refuses to go on where this differs from its beginning."""
    probe = pl.DataFrame(
        {"text": ["", "a", "resurge", None], "number": [0, 1, -1, None], "flag": [True, False, None, True]},
        schema={"text": pl.String, "number": pl.Int64, "flag": pl.Boolean},
    )
    return "-".join(f"{int(value):016x}"[:8] for value in hash_rows(probe, probe.columns))
