"""Numbers of keys: the same whichever way they are found."""

import numpy as np
import polars as pl
import pytest

from resurge.operators import coding
from resurge.operators.coding import coded
from resurge.operators.hashing import Hashes, hash_rows


def _rows(seed: int, height: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    names = rng.choice(["", "a", "b", "a longer name than fits in place", None], size=height)
    numbers = pl.Series("number", rng.integers(-3, 3, size=height))
    return pl.DataFrame([pl.Series("name", names.tolist(), dtype=pl.String), numbers])


@pytest.mark.parametrize("seed", range(20))
def test_codes_stand_for_keys_in_the_order_of_hashes(seed: int) -> None:
    """Each row's code stands for its key; keys are distinct, and ordered by their hashes."""
    rows = _rows(seed, height=seed * 7)
    for key in (("name",), ("number",), ("name", "number")):
        found = coded(rows, key)
        assert found.keys[found.codes].equals(rows.select(key))
        assert found.keys.is_unique().all()
        assert np.array_equal(found.hashes, hash_rows(found.keys, key))
        assert (found.hashes[1:] > found.hashes[:-1]).all()


@pytest.mark.parametrize("seed", range(20))
def test_different_keys_of_one_hash_have_different_codes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stand in the order of their first rows."""

    def few(frame: pl.DataFrame, key: tuple[str, ...]) -> Hashes:
        return hash_rows(frame, key) % np.uint64(3)

    monkeypatch.setattr(coding, "hash_rows", few)
    rows = _rows(seed, height=1 + seed * 7)
    found = coded(rows, ("name", "number"))
    assert found.keys[found.codes].equals(rows)
    assert found.keys.is_unique().all()
    assert np.array_equal(found.hashes, few(found.keys, ("name", "number")))
    firsts = np.unique(found.codes, return_index=True)[1]
    same = found.hashes[1:] == found.hashes[:-1]
    assert (found.hashes[1:] >= found.hashes[:-1]).all() and (firsts[1:] > firsts[:-1])[same].all()
