"""Stream-stream joins: columns, order, what is refused."""

from dataclasses import replace

import polars as pl
import pytest

from resurge.errors import TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.join import IntervalJoin
from tests.support.operator_runner import Epoch, run_epochs

LEFT = StreamShape(pl.Schema({"user": pl.Int64(), "at": pl.Datetime("us"), "note": pl.String()}), "at")
RIGHT = StreamShape(pl.Schema({"at": pl.Datetime("us"), "note": pl.String(), "user": pl.Int64()}), "at")
WITHIN = IntervalJoin("joined", ("clicks", "views"), ("user",), ("at", "at"), within_us=5)
WINDOW = replace(WITHIN, within_us=None, window_us=10)
LEFT_OUTER = replace(WITHIN, how="left")


def epoch(left=(), right=(), closing_us=None):
    frames = pl.DataFrame(left, LEFT.schema, orient="row"), pl.DataFrame(right, RIGHT.schema, orient="row")
    return Epoch(frames, closing_us, restored=True)


def plain(output):
    return output.with_columns(pl.col("at", "at_right", "joined_at").dt.epoch("us")).rows()


def test_output_has_key_left_right_and_the_later_time():
    """Names that both sides have get a suffix on the right."""
    result = run_epochs(
        WITHIN, [LEFT, RIGHT], [epoch([(1, 10, "l")]), epoch(right=[(14, "r", 1), (16, "far", 1), (12, "other", 2)])]
    )
    assert result.output.columns == ["user", "at", "note", "at_right", "note_right", "joined_at"]
    assert plain(result.output) == [(1, 10, "l", 14, "r", 14)]


@pytest.mark.parametrize("distance", [-6, -5, 0, 5, 6])
@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize("order", ["left first", "right first", "together"])
def test_rows_match_up_to_the_distance_whichever_is_earlier_and_whichever_comes_first(distance, at, order):
    """Wherever the times lie in their slices."""
    left, right = [(1, at, "l")], [(at + distance, "r", 1)]
    if order == "together":
        epochs = [epoch(left, right)]
    else:
        epochs = [epoch(left), epoch(right=right)] if order == "left first" else [epoch(right=right), epoch(left)]
    result = run_epochs(WITHIN, [LEFT, RIGHT], epochs, delay_us=50)
    assert result.output.height == (abs(distance) <= 5)


def test_pairs_come_in_the_order_of_the_rows():
    """First known left rows, then new ones, each with its right rows in order."""
    epochs = [epoch([(1, 10, "known")]), epoch([(1, 11, "new")], [(12, "first", 1), (13, "second", 1)])]
    result = run_epochs(WITHIN, [LEFT, RIGHT], epochs, delay_us=50)
    assert result.output.select("note", "note_right").rows() == [
        ("known", "first"),
        ("known", "second"),
        ("new", "first"),
        ("new", "second"),
    ]


def test_left_row_comes_out_unmatched_only_when_nothing_can_match_it_any_more():
    """At time 10 and within 5, a right row at 15 would match; so wait until the watermark is past 15."""
    epochs = [epoch([(1, 10, "l"), (None, 10, "no key")]), epoch(closing_us=15), epoch(closing_us=16), epoch(closing_us=99)]
    result = run_epochs(LEFT_OUTER, [LEFT, RIGHT], epochs)
    assert [output.height for output in result.outputs] == [0, 0, 2, 0]
    assert plain(result.output) == [(None, 10, "no key", None, None, 10), (1, 10, "l", None, None, 10)]


def test_left_row_that_matched_never_comes_out_unmatched():
    """Not even when the match came an epoch later."""
    epochs = [epoch([(1, 10, "l")]), epoch(right=[(12, "r", 1)]), epoch(closing_us=99)]
    assert plain(run_epochs(LEFT_OUTER, [LEFT, RIGHT], epochs).output) == [(1, 10, "l", 12, "r", 12)]


def test_window_join_matches_within_the_window_only():
    """19 and 20 are near, but in different windows."""
    epochs = [epoch([(1, 19, "l")], [(20, "next", 1), (10, "same", 1)])]
    assert plain(run_epochs(WINDOW, [LEFT, RIGHT], epochs).output) == [(1, 19, "l", 10, "same", 19)]


def test_late_rows_of_both_sides_are_counted():
    """A row before the watermark is late; one without time too."""
    epochs = [epoch(closing_us=100), epoch([(1, 99, "late"), (1, 100, "in time"), (1, None, "no time")], [(98, "late", 1)])]
    assert run_epochs(WITHIN, [LEFT, RIGHT], epochs).late_rows == (0, 3)


def test_state_of_closed_times_is_gone():
    """Rows that nothing can match are not kept."""
    result = run_epochs(WITHIN, [LEFT, RIGHT], [epoch([(1, 10, "l")], [(10, "r", 2)]), epoch(closing_us=10_000)])
    assert all(table.rows().height == 0 for table in result.state.values())


def test_join_without_bound_is_repeatable_and_needs_no_time():
    """A join whose rows may match at any time repeats its output; one with a bound in time converges to it."""
    unbounded = replace(WITHIN, within_us=None, times=(None, None))
    shape = unbounded.shape([StreamShape(LEFT.schema, None), StreamShape(RIGHT.schema, None)])
    assert unbounded.determinism is Determinism.REPEATABLE
    assert WITHIN.determinism is Determinism.CONVERGENT
    assert shape.event_time is None
    assert "joined_at" not in shape.schema


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": ("who",)}, "uses column 'who'"),
        ({"key": ()}, "at least one key column"),
        ({"how": "right"}, "expected one of inner, left"),
        ({"window_us": 10}, "both within and window"),
        ({"within_us": -1}, "not negative"),
        ({"within_us": None, "how": "left"}, "could match for ever"),
        ({"times": ("note", "at")}, "event time is 'at'"),
        ({"times": (None, "at")}, "names no time column"),
        ({"time_column": "note"}, "two columns called 'note'"),
    ],
)
def test_join_that_cannot_run_is_refused(change, message):
    """Before anything runs, with what was expected."""
    with pytest.raises(TopologyError, match=message):
        replace(WITHIN, **change).shape([LEFT, RIGHT])


def test_key_columns_of_different_types_are_refused():
    """They would hash differently and never meet."""
    other = StreamShape(pl.Schema({**RIGHT.schema, "user": pl.Int32()}), "at")
    with pytest.raises(TopologyError, match="is Int64 in 'clicks' and Int32 in 'views'"):
        WITHIN.shape([LEFT, other])
