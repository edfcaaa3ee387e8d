"""What a state's runs take in a node's store."""

import polars as pl

from resurge.operators.sorted_runs import TableDelta, TableSpec
from resurge.operators.state import KeyedTable, State
from resurge.storage.runs import LEAST_UNUSED_BYTES, RunRef, SegmentWriter, placed_anew, save_locally, wasteful_segments

SPEC = TableSpec(pl.Schema({"key": pl.Int64(), "value": pl.Int64()}), ("key",))


def saved(state: State, name: str) -> tuple[State, int]:
    """The state with its places in a segment, and the segment's size."""
    writer = SegmentWriter(name)
    state, _ = save_locally(state, writer)
    return state, len(writer.finish(b""))


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
