"""A keyed table is a dict, whatever the epochs did to it, and whatever the hash."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resurge.operators import sorted_runs, state
from resurge.operators.hashing import key_group_ends, key_groups_of
from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import MERGE_FACTOR, KeyedTable, joined

PLAIN = TableSpec(pl.Schema({"word": pl.String(), "number": pl.Int64(), "value": pl.Int64()}), ("word", "number"))
IN_KEY = TableSpec(PLAIN.schema, ("word", "number"), "number")
IN_VALUE = TableSpec(PLAIN.schema, ("word", "number"), "value")

words = st.sampled_from(["a", "b", None])
numbers = st.integers(0, 5)
keys = st.tuples(words, numbers)
deltas = st.lists(
    st.tuples(
        st.dictionaries(keys, st.integers(0, 9), max_size=8),
        st.lists(keys, max_size=4, unique=True),
        st.none() | st.integers(0, 9),
    ),
    max_size=8,
)
real_hash = sorted_runs.hash_rows


def poor_hash(frame, key):
    """Two hashes only, so that most keys share one."""
    return real_hash(frame, key) % np.uint64(2)


def rows_of(items):
    return pl.DataFrame([(word, number, value) for (word, number), value in items.items()], schema=PLAIN.schema, orient="row")


def keys_of(items):
    return pl.DataFrame(items, schema={"word": pl.String(), "number": pl.Int64()}, orient="row")


def check(table, model):
    """Every way to read the table agrees with the dict."""
    found = {(word, number): value for word, number, value in table.rows().rows()}
    assert found == model
    assert table.rows().height == len(model)
    wanted = [(word, number) for word in ("b", None, "a", "z") for number in (5, 0, 3, 1, 2, 4)]
    assert table.contains(keys_of(wanted)).tolist() == [key in model for key in wanted]
    assert table.lookup(keys_of(wanted)).get_column("value").to_list() == [model.get(key) for key in wanted]
    (numbers,) = table.numbers(keys_of(wanted), ["value"], table.spec.hashes(keys_of(wanted)))
    assert numbers.tolist() == [model.get(key, 0) for key in wanted]


@pytest.fixture(params=["good", "poor", "good, with an index", "poor, with an index"], autouse=True, scope="module")
def hashing(request):
    """Every law holds when keys collide too, and when runs have indexes, as large ones have."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param.startswith("poor"):
            patch.setattr(sorted_runs, "hash_rows", poor_hash)
        if request.param.endswith("with an index"):
            patch.setattr(sorted_runs, "FILTERED_ROWS", 1)
            patch.setattr(sorted_runs, "INDEXED_ROWS", 1)
        yield


@settings(max_examples=20, deadline=None)
@given(deltas)
def test_table_is_a_dict(changes):
    """Upserts and deletes act as on a dict; a key in both is kept; the table before a change stays as it was."""
    table, model = KeyedTable(PLAIN), {}
    for upserts, deletes, _ in changes:
        changed = table.apply(TableDelta(rows_of(upserts), keys_of(deletes)))
        check(table, model)
        table, model = changed, {**{key: value for key, value in model.items() if key not in deletes}, **upserts}
        check(table, model)


@pytest.mark.parametrize("spec", [IN_KEY, IN_VALUE], ids=["bucket in key", "bucket in value"])
@settings(max_examples=20, deadline=None)
@given(changes=deltas)
def test_low_hides_rows_for_ever_and_no_older_row_comes_back(spec, changes):
    """A row is there while its own bucket is not below the highest low so far; what it replaced never is."""
    table, model, lowest = KeyedTable(spec), {}, -1
    for upserts, deletes, low in changes:
        table = table.apply(TableDelta(rows_of(upserts), keys_of(deletes), low))
        model = {**{key: value for key, value in model.items() if key not in deletes}, **upserts}
        lowest = max(lowest, -1 if low is None else low)
        model = {key: value for key, value in model.items() if bucket(spec, key, value) >= lowest}
        check(table, model)
        between = {(word, number): value for word, number, value in table.between(2, 5).rows()}
        assert between == {key: value for key, value in model.items() if 2 <= bucket(spec, key, value) < 5}


def bucket(spec, key, value):
    return key[1] if spec is IN_KEY else value


@settings(max_examples=20, deadline=None)
@given(deltas)
def test_runs_stay_few_and_have_each_key_once(changes):
    """Runs are ordered by hash, hold a key once, and each is several times as large as the next."""
    table = KeyedTable(PLAIN)
    for upserts, deletes, _ in changes:
        table = table.apply(TableDelta(rows_of(upserts), keys_of(deletes)))
        for run in table.runs:
            assert (np.diff(run.hashes.astype(np.float64)) >= 0).all()
            assert not run.rows.select("word", "number").is_duplicated().any()
        heights = [run.height for run in table.runs]
        assert all(older > MERGE_FACTOR / 2 * newer for older, newer in pairwise(heights))


ROUTED = TableSpec(PLAIN.schema, ("word", "number"), routing=("word",))
KEY_GROUPS = 5
group_sets = st.lists(st.integers(0, KEY_GROUPS - 1), unique=True)


def group_of(word):
    return int(key_groups_of(sorted_runs.hash_rows(keys_of([(word, 0)]), ("word",)), KEY_GROUPS)[0])


@settings(max_examples=40, deadline=None)
@given(deltas, deltas, group_sets)
def test_a_table_that_is_cut_by_key_groups_and_joined_again_is_the_same_dict(changes, later, groups):
    """Whatever was done to the whole before and to each piece since; also where one piece then goes on alone."""
    table, model = KeyedTable(ROUTED), {}
    for upserts, deletes, _ in changes:
        table = table.apply(TableDelta(rows_of(upserts), keys_of(deletes)))
        model = {**{key: value for key, value in model.items() if key not in deletes}, **upserts}
    others = [group for group in range(KEY_GROUPS) if group not in groups]
    pieces = []
    for mine in (groups, others):
        piece = table.within(mine, KEY_GROUPS)
        expected = {key: value for key, value in model.items() if group_of(key[0]) in mine}
        check(piece, expected)
        for upserts, deletes, _ in later:
            own = {key: value for key, value in upserts.items() if group_of(key[0]) in mine}
            gone = [key for key in deletes if group_of(key[0]) in mine]
            piece = piece.apply(TableDelta(rows_of(own), keys_of(gone)))
        pieces.append(piece)
    for upserts, deletes, _ in later:
        model = {**{key: value for key, value in model.items() if key not in deletes}, **upserts}
    whole = joined(pieces)
    check(whole, model)
    assert whole.rows_per_group(KEY_GROUPS).sum() == sum(run.height for run in whole.runs)
    for upserts, deletes, _ in changes:
        whole = whole.apply(TableDelta(rows_of(upserts), keys_of(deletes)))
        model = {**{key: value for key, value in model.items() if key not in deletes}, **upserts}
    check(whole, model)


def test_large_runs_stay_apart_when_tables_are_joined_unless_there_are_many(monkeypatch):
    """A key group that arrives does not have the state of the others written anew; lookups still look into few runs."""
    monkeypatch.setattr(state, "LARGE_ROWS", 10)
    rows = {(word, number): number for word in "abcdefghijklmnopqrstuvwxyz" for number in range(9)}
    table = KeyedTable(ROUTED).apply(TableDelta(rows_of(rows)))
    pieces = [table.within([group], KEY_GROUPS) for group in range(KEY_GROUPS)]
    filled = [piece for piece in pieces if piece.runs]
    whole = joined(filled)
    check(whole, rows)
    assert len(whole.runs) == len(filled)
    monkeypatch.setattr(state, "MOST_APART", 1)
    once = joined(filled)
    check(once, rows)
    assert len(once.runs) <= 2


@settings(max_examples=20, deadline=None)
@given(deltas)
def test_runs_are_ordered_by_key_group_first(changes):
    """Also in a table whose key is longer than the routing key; so a key group is a slice of each run."""
    table = KeyedTable(ROUTED)
    for upserts, deletes, _ in changes:
        table = table.apply(TableDelta(rows_of(upserts), keys_of(deletes)))
    for run in table.runs:
        groups = [group_of(word) for word in run.rows.get_column("word")]
        assert groups == sorted(groups)
        assert np.diff(key_group_ends(run.hashes, KEY_GROUPS), prepend=0).tolist() == [groups.count(g) for g in range(KEY_GROUPS)]
