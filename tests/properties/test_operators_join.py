"""Stream-stream joins against a nested loop in plain Python."""

from dataclasses import astuple

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from resurge.model.operator import StreamShape
from resurge.operators.join import IntervalJoin, JoinSpan
from tests.support.operator_runner import FOREVER_US, Epoch, run_epochs

LEFT = StreamShape(pl.Schema({"note": pl.String(), "user": pl.Int64(), "at": pl.Datetime("us")}), "at")
RIGHT = StreamShape(pl.Schema({"user": pl.Int64(), "seen": pl.Datetime("us"), "note": pl.String()}), "seen")

row = st.tuples(st.sampled_from([1, 2, None]), st.one_of(st.none(), st.integers(-5, 12)), st.sampled_from("xyz"))
rows = st.lists(row, max_size=6)
epochs = st.lists(st.tuples(rows, rows, st.booleans()), max_size=5)
bounded = st.one_of(
    st.builds(JoinSpan, within_us=st.integers(0, 6), lateness_us=st.integers(0, 4)),
    st.builds(JoinSpan, window_us=st.integers(1, 9), lateness_us=st.integers(0, 4)),
)


def left_frame(given_rows):
    return pl.DataFrame([(note, user, at) for user, at, note in given_rows], schema=LEFT.schema, orient="row")


def right_frame(given_rows):
    return pl.DataFrame([(user, at, note) for user, at, note in given_rows], schema=RIGHT.schema, orient="row")


def run(operator, cut, delay_us, times=True):
    shapes = [LEFT, RIGHT] if times else [StreamShape(LEFT.schema, None), StreamShape(RIGHT.schema, None)]
    runs = [Epoch((left_frame(left), right_frame(right)), restored=restored) for left, right, restored in cut]
    return run_epochs(operator, shapes, [*runs, Epoch((left_frame([]), right_frame([])), FOREVER_US)], delay_us)


def as_pairs(output):
    """Output as (user, left time, left note, right time, right note), in any order."""
    times = output.with_columns(pl.col("at", "seen").dt.epoch("us"))
    return sorted(times.select("user", "at", "note", "seen", "note_right").rows(), key=repr)


def matches(span, left, right):
    if left[0] is None or left[0] != right[0]:
        return False
    if span.window_us is not None:
        return left[1] // span.window_us == right[1] // span.window_us
    return span.within_us is None or abs(left[1] - right[1]) <= span.within_us


def nested_loop(span, how, left_rows, right_rows):
    found = []
    for left in left_rows:
        mine = [right for right in right_rows if matches(span, left, right)]
        found += [(left[0], left[1], left[2], right[1], right[2]) for right in mine]
        if not mine and how == "left":
            found.append((left[0], left[1], left[2], None, None))
    return sorted(found, key=repr)


def is_late(span, time, watermark):
    if time is None:
        return True
    if watermark is None:
        return False
    last = (time // span.window_us + 1) * span.window_us - 1 if span.window_us is not None else time
    return last < watermark - span.lateness_us


def timely_rows(span, cut, delay):
    """The rows that are not late, judged epoch by epoch against the watermark at the epoch's beginning."""
    kept, newest, watermark = ([], []), [None, None], None
    for left, right, _ in cut:
        for side, given_rows in enumerate((left, right)):
            kept[side].extend(row for row in given_rows if not is_late(span, row[1], watermark))
            times = [row[1] for row in given_rows if row[1] is not None]
            newest[side] = max([*times, *([] if newest[side] is None else [newest[side]])], default=None)
        if None not in newest:
            watermark = max([min(newest) - delay, *([] if watermark is None else [watermark])])
    return kept


@settings(max_examples=40, deadline=None)
@given(epochs, bounded, st.sampled_from(["inner", "left"]), st.integers(0, 15))
def test_bounded_join_is_the_nested_loop_over_timely_rows(cut, span, how, delay):
    """Every pair of timely rows that match comes out once; a left row that nothing matched comes out once."""
    operator = IntervalJoin("joined", ("clicks", "views"), ("user",), ("at", "seen"), *astuple(span), how)
    result = run(operator, cut, delay)
    left, right = timely_rows(span, cut, delay)
    assert as_pairs(result.output) == nested_loop(span, how, left, right)
    assert sum(result.late_rows) == sum(len(more) + len(others) for more, others, _ in cut) - len(left) - len(right)
    later = pl.max_horizontal("at", "seen")
    assert result.output.select((pl.col("joined_at") == later).all()).item()
    assert all(table.rows().height == 0 for table in result.state.values())


@settings(max_examples=15, deadline=None)
@given(epochs)
def test_unbounded_join_needs_no_time_and_forgets_nothing(cut):
    """Without a bound all rows with the same key match, whatever the cuts."""
    operator = IntervalJoin("joined", ("clicks", "views"), ("user",), (None, None))
    result = run(operator, cut, delay_us=0, times=False)
    left, right = ([row for epoch in cut for row in epoch[side]] for side in (0, 1))
    assert as_pairs(result.output) == nested_loop(JoinSpan(), "inner", left, right)
    assert sum(result.late_rows) == 0
