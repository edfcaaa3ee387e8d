"""The index of a large run finds what a binary search finds."""

import numpy as np
import pytest

from resurge.operators import sorted_runs
from resurge.operators.sorted_runs import HashIndex

RNG = np.random.default_rng(5)
MANY = 5_000
LAST = 2**64 - 1
HASHES = {
    "even": RNG.integers(0, LAST, MANY, dtype=np.uint64, endpoint=True),
    "the ends": np.append(RNG.integers(0, LAST, MANY, dtype=np.uint64), np.array([0, LAST], dtype=np.uint64)),
    "some key groups": RNG.integers(0, 2**58, MANY, dtype=np.uint64) + np.uint64(5 << 60),
    "one routing key": RNG.integers(0, 2**32, MANY, dtype=np.uint64) + np.uint64(7 << 40),
    "one far away": np.append(RNG.integers(0, 2**20, MANY, dtype=np.uint64), np.uint64(LAST)),
    "all alike": np.full(MANY, 2**63, dtype=np.uint64),
    "many alike": RNG.integers(0, 50, MANY, dtype=np.uint64),
}


def asked_of(ordered):
    """The hashes themselves, their neighbours, and others below, between and above."""
    near = np.concatenate([ordered, ordered + np.uint64(1), ordered - np.uint64(1)])
    return np.concatenate([near, RNG.integers(0, LAST, MANY, dtype=np.uint64), np.array([0, LAST], dtype=np.uint64)])


@pytest.mark.parametrize("indexed_rows", [1, MANY + 2])
@pytest.mark.parametrize("name", HASHES)
def test_every_hash_is_found_where_a_binary_search_finds_it(name, indexed_rows, monkeypatch):
    """Those that are there, their neighbours, and others below, between and above; with an index and without."""
    monkeypatch.setattr(sorted_runs, "INDEXED_ROWS", indexed_rows)
    ordered = np.sort(HASHES[name])
    asked = asked_of(ordered)
    for index in (HashIndex(ordered), HashIndex(ordered[:5]), HashIndex(ordered[-4:])):
        rows, places = index.find(asked)
        assert rows.tolist() == np.flatnonzero(np.isin(asked, index.hashes)).tolist()
        assert (places == np.searchsorted(index.hashes, asked[rows])).all()


@pytest.mark.parametrize("name", HASHES)
def test_no_hash_that_is_there_is_left_out(name, monkeypatch):
    """All that a run has may be there."""
    monkeypatch.setattr(sorted_runs, "FILTERED_ROWS", 1)
    ordered = np.sort(HASHES[name])
    asked = asked_of(ordered)
    for index in (HashIndex(ordered), HashIndex(ordered[:5]), HashIndex(ordered[-4:])):
        assert index.may_have(asked)[np.isin(asked, index.hashes)].all()


def test_most_hashes_that_are_not_there_are_left_out():
    """An even run tells three of five misses at once, or more."""
    index = HashIndex(np.sort(RNG.integers(0, LAST, 20_000, dtype=np.uint64)))
    others = RNG.integers(0, LAST, 20_000, dtype=np.uint64)
    assert index.may_have(others).sum() < 0.4 * others.size
