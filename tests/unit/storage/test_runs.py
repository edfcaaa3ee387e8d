"""What a state's runs take in a node's store."""

import polars as pl

from resurge.operators.hashing import key_groups_of
from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import KeyedTable, State, joined
from resurge.storage.runs import (
    LEAST_UNUSED_BYTES,
    Loader,
    RunRef,
    SavedCohort,
    SegmentWriter,
    durable_only,
    known_durable,
    placed_anew,
    save_locally,
    wasteful_segments,
    write_durably,
)

SPEC = TableSpec(pl.Schema({"key": pl.Int64(), "value": pl.Int64()}), ("key",))


def saved(state: State, name: str) -> tuple[State, int]:
    """The state with its places in a segment, and the segment's size."""
    writer = SegmentWriter(name)
    state, _ = save_locally(state, writer)
    return state, sum(map(len, writer.finish(b"")))


def rows(first: int, last: int) -> KeyedTable:
    keys = pl.Series("key", range(first, last), dtype=pl.Int64)
    return KeyedTable(SPEC).apply(TableDelta(pl.DataFrame([keys, keys.alias("value")])))


def segments(state: State) -> set[str]:
    return {RunRef.decode(run.local or "").segment for table in state.values() for run in table.runs}


def test_a_segment_that_is_less_than_half_used_is_rewritten() -> None:
    """A small table shares a segment with a large one, which then goes."""
    large = 2 * LEAST_UNUSED_BYTES // 16
    both, size_bytes = saved({"large": rows(0, large), "small": rows(0, large // 8)}, "first")
    assert wasteful_segments([both], {"first": size_bytes}) == frozenset()
    left = {"small": both["small"]}
    wasteful = wasteful_segments([left], {"first": size_bytes})
    assert wasteful == {"first"}
    moved, _ = saved(placed_anew(left, wasteful), "second")
    assert segments(moved) == {"second"}
    assert moved["small"].rows().equals(both["small"].rows())


def test_little_waste_is_left_alone() -> None:
    """Writing a few bytes once more in every epoch would cost more than they take."""
    both, size_bytes = saved({"large": rows(0, 1000), "small": rows(0, 10)}, "first")
    assert wasteful_segments([{"small": both["small"]}], {"first": size_bytes}) == frozenset()


def keys_of(group: int, count: int) -> pl.Series:
    """So many keys of one of two key groups."""
    keys = pl.Series("key", range(10 * count), dtype=pl.Int64)
    return keys.filter(pl.Series(key_groups_of(SPEC.hashes(keys.to_frame()), 2) == group)).head(count)


def test_a_key_group_that_leaves_and_comes_back_brings_no_old_rows_of_its_neighbours() -> None:
    """The place of a run that was cut has their rows as well: neither is it written again, nor do those rows hide newer ones."""
    many, few = keys_of(0, 1000), keys_of(1, 10)
    keys = pl.concat([many, few])
    table = KeyedTable(SPEC).apply(TableDelta(pl.DataFrame([keys, keys.alias("value")])))
    first, durable = SegmentWriter("first"), SegmentWriter("durable")
    content: dict[str, bytes] = {}

    def read(place: RunRef) -> memoryview:
        return memoryview(content[place.segment])[place.offset : place.offset + place.length]

    state, tables = save_locally({"t": table}, first)
    content["first"] = b"".join(first.finish(b""))
    written = write_durably(SavedCohort("o", [0, 1], tables), read, durable, 2)
    state = known_durable(state, {run.local or "": run.durable for run in written.tables["t"].runs})
    stays, leaves = (state["t"].within([group], 2) for group in (0, 1))
    assert {run.local for run in (*stays.runs, *leaves.runs)} == {state["t"].runs[0].local}
    changed = stays.apply(TableDelta(pl.DataFrame([many.head(300), (many.head(300) * 0).alias("value")])))
    back = joined([changed, leaves])
    second = SegmentWriter("second")
    state, tables = save_locally({"t": back}, second)
    content["second"], before_bytes = b"".join(second.finish(b"")), durable.size
    tables = write_durably(SavedCohort("o", [0, 1], tables), read, durable, 2).tables
    content["durable"] = b"".join(durable.finish(b""))
    assert durable.size - before_bytes < before_bytes
    loader = Loader({"t": SPEC}, 2, read)
    expected = back.rows().sort("key")
    assert second.size < first.size
    assert loader.local([SavedCohort("o", [0, 1], tables)], [0, 1])["t"].rows().sort("key").equals(expected)
    assert loader.durable([SavedCohort("o", [0, 1], durable_only(tables))], [0, 1])["t"].rows().sort("key").equals(expected)
