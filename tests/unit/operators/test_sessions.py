"""Session windows: what is emitted when, and what is refused."""

from dataclasses import replace

import polars as pl
import pytest

from resurge.errors import TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.aggregates import count, sum_
from resurge.operators.sessions import SessionWindow
from tests.support.operator_runner import Epoch, run_epochs

SCHEMA = pl.Schema({"user": pl.String(), "amount": pl.Int64(), "at": pl.Datetime("us")})
SHAPE = StreamShape(SCHEMA, "at")
FINAL = SessionWindow("visits", ("clicks",), ("user",), "at", 10, (("rows", count()), ("total", sum_("amount"))), 0, "final")
UPDATE = replace(FINAL, emit="update")


def epoch(*rows, closing_us=None):
    return Epoch((pl.DataFrame(rows, schema=SCHEMA, orient="row"),), closing_us, restored=True)


def plain(output):
    return output.with_columns(pl.col("window_start", "window_end").dt.epoch("us")).rows()


def test_row_between_two_sessions_merges_them_and_takes_the_later_back():
    """The merged session keeps the earlier start; the other's row is retracted as it was."""
    result = run_epochs(UPDATE, [SHAPE], [epoch(("a", 1, 0), ("a", 2, 15)), epoch(("a", 4, 8))], delay_us=100)
    assert plain(result.outputs[0]) == [("a", 0, 10, 1, 1, False), ("a", 15, 25, 1, 2, False)]
    assert plain(result.outputs[1]) == [("a", 0, 25, 3, 7, False), ("a", 15, 25, 1, 2, True)]


def test_session_that_grows_backwards_takes_its_old_start_back():
    """A session is known by its start, so the old start is retracted."""
    result = run_epochs(UPDATE, [SHAPE], [epoch(("a", 1, 20)), epoch(("a", 2, 15))], delay_us=100)
    assert plain(result.outputs[1]) == [("a", 15, 30, 2, 3, False), ("a", 20, 30, 1, 1, True)]


def test_row_exactly_a_gap_later_begins_another_session():
    """A session ends a gap after its last row, and its end is no longer part of it."""
    result = run_epochs(FINAL, [SHAPE], [epoch(("a", 1, 0), ("a", 2, 10), closing_us=20)])
    assert plain(result.output) == [("a", 0, 10, 1, 1), ("a", 10, 20, 1, 2)]


def test_session_is_final_when_the_watermark_reaches_its_end_plus_the_lateness():
    """One microsecond before, it is still open."""
    late = replace(FINAL, lateness_us=5)
    result = run_epochs(late, [SHAPE], [epoch(("a", 1, 0)), epoch(closing_us=14), epoch(closing_us=15), epoch(closing_us=99)])
    assert [output.height for output in result.outputs] == [0, 0, 1, 0]


def test_late_row_is_taken_only_into_a_session_that_is_still_in_state():
    """Two rows of the same late time: one falls into an open session, the other's key has none."""
    epochs = [
        epoch(("a", 1, 0), ("a", 1, 9), ("a", 1, 18)),
        epoch(closing_us=20),
        epoch(("a", 1, 5), ("b", 1, 5), ("a", 1, None)),
    ]
    result = run_epochs(UPDATE, [SHAPE], epochs, delay_us=100)
    assert plain(result.outputs[2]) == [("a", 0, 28, 4, 4, False)]
    assert result.late_rows == (0, 0, 2)


def test_rows_apart_inside_one_long_session_join_it():
    """The session, not the row before, says whether a row belongs to it."""
    result = run_epochs(
        FINAL, [SHAPE], [epoch(*(("a", 1, at) for at in range(0, 45, 5))), epoch(("a", 1, 3), ("a", 1, 28))], delay_us=99
    )
    assert result.state["sessions"].rows().get_column("__sessions").list.len().to_list() == [1]


def test_one_time_to_close_is_kept_per_open_session():
    """A session that grows leaves no trace of its earlier ends."""
    result = run_epochs(UPDATE, [SHAPE], [epoch(("a", 1, at)) for at in range(0, 50, 5)], delay_us=99)
    assert result.state["due"].rows().rows() == [(55, "a")]


def test_sessions_are_convergent_and_have_their_end_as_event_time():
    """What a topology needs to know of them."""
    assert UPDATE.determinism is Determinism.CONVERGENT
    assert UPDATE.keys() == (("user",),)
    assert UPDATE.shape([SHAPE]).event_time == "window_end"
    assert list(UPDATE.shape([SHAPE]).schema) == ["user", "window_start", "window_end", "rows", "total", "retracted"]
    assert "retracted" not in FINAL.shape([SHAPE]).schema


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": ("who",)}, "uses column 'who'"),
        ({"key": ()}, "has no key"),
        ({"emit": "never"}, "expected one of update, final"),
        ({"gap_us": 0}, "a gap of more than zero"),
        ({"time": "amount"}, "event time is 'at'"),
        ({"aggregates": (("window_end", count()),)}, "two columns called 'window_end'"),
        ({"aggregates": (("total", sum_("user")),)}, "expected a number"),
    ],
)
def test_session_window_that_cannot_run_is_refused(change, message):
    """Before anything runs, with what was expected."""
    with pytest.raises(TopologyError, match=message):
        replace(FINAL, **change).shape([SHAPE])


def test_session_window_without_event_time_is_refused():
    """There is nothing to measure the gap in."""
    with pytest.raises(TopologyError, match="needs event time"):
        FINAL.shape([StreamShape(SCHEMA, None)])
