"""Session windows against a plain Python oracle."""

from itertools import pairwise

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from resurge.model.operator import StreamShape
from resurge.operators.aggregates import count, max_, mean, sum_
from resurge.operators.sessions import SessionWindow
from tests.support.operator_runner import FOREVER_US, Epoch, run_epochs

SCHEMA = pl.Schema({"user": pl.String(), "amount": pl.Int64(), "at": pl.Datetime("us")})
SHAPE = StreamShape(SCHEMA, "at")
GAP = 5
AGGREGATES = (("rows", count()), ("total", sum_("amount")), ("largest", max_("amount")), ("average", mean("amount")))

rows = st.tuples(st.sampled_from(["a", "b", None]), st.one_of(st.none(), st.integers(-9, 9)), st.integers(-5, 25))
epochs = st.lists(st.tuples(st.lists(rows, max_size=8), st.booleans()), max_size=6)


def frame(given_rows):
    return pl.DataFrame(given_rows, schema=SCHEMA, orient="row")


def operator(emit, lateness_us=0):
    return SessionWindow("visits", ("clicks",), ("user",), "at", GAP, AGGREGATES, lateness_us, emit)


def oracle(given_rows):
    """Sessions of rows by the definition: sort, and cut where the distance is the gap or more."""
    sessions = {}
    for user in {row[0] for row in given_rows}:
        mine = sorted((row for row in given_rows if row[0] == user), key=lambda row: row[2])
        cuts = [0, *(i + 1 for i, (one, two) in enumerate(pairwise(mine)) if two[2] - one[2] >= GAP), len(mine)]
        for low, high in pairwise(cuts):
            members = mine[low:high]
            amounts = [row[1] for row in members if row[1] is not None]
            sessions[user, members[0][2]] = (
                members[-1][2] + GAP,
                len(members),
                sum(amounts),
                max(amounts, default=None),
                sum(amounts) / len(amounts) if amounts else None,
            )
    return sessions


def as_sessions(output):
    times = output.with_columns(pl.col("window_start", "window_end").dt.epoch("us"))
    return [((row[0], row[1]), tuple(row[2:7])) for row in times.rows()]


@settings(max_examples=25, deadline=None)
@given(epochs, st.integers(0, 10))
def test_final_sessions_equal_those_of_all_timely_rows_whatever_the_cuts(cut, lateness):
    """With a watermark far behind, every row is timely and each session comes out exactly once."""
    runs = [Epoch((frame(given_rows),), restored=restored) for given_rows, restored in cut]
    result = run_epochs(operator("final", lateness), [SHAPE], [*runs, Epoch((frame([]),), FOREVER_US)], delay_us=200)
    found = as_sessions(result.output)
    assert len(found) == len(dict(found))
    assert dict(found) == oracle([row for given_rows, _ in cut for row in given_rows])
    assert sum(result.late_rows) == 0
    assert all(table.rows().height == 0 for table in result.state.values())


@settings(max_examples=25, deadline=None)
@given(epochs, st.integers(0, 10))
def test_updates_and_retractions_leave_exactly_the_sessions(cut, lateness):
    """Applying each epoch's output to a table by (key, window_start) gives the sessions of the rows so far."""
    runs = [Epoch((frame(given_rows),), restored=restored) for given_rows, restored in cut]
    result = run_epochs(operator("update", lateness), [SHAPE], runs, delay_us=200)
    table, seen = {}, []
    for (given_rows, _), output in zip(cut, result.outputs, strict=True):
        for (key, value), retracted in zip(as_sessions(output), output.get_column("retracted"), strict=True):
            if retracted:
                assert table.pop(key) == value
            else:
                table[key] = value
        seen += given_rows
        assert table == oracle(seen)


@settings(max_examples=40, deadline=None)
@given(epochs, st.integers(0, 6), st.integers(0, 10))
def test_late_rows_are_counted_and_the_rest_is_in_sessions(cut, lateness, delay):
    """Session by session, an operator with a tight watermark does what the one-row-at-a-time definition says."""
    runs = [Epoch((frame(given_rows),), restored=restored) for given_rows, restored in cut]
    result = run_epochs(operator("final", lateness), [SHAPE], [*runs, Epoch((frame([]),), FOREVER_US)], delay_us=delay)
    emitted, late = replay_by_definition([given_rows for given_rows, _ in cut], lateness, delay)
    assert sorted(as_sessions(result.output), key=repr) == sorted(emitted, key=repr)
    assert list(result.late_rows[:-1]) == late


def replay_by_definition(cut, lateness, delay):
    """Keep all timely rows of open sessions as rows; judge, add, close."""
    kept, emitted, late, watermark, newest = [], [], [], None, None
    for given_rows in [*cut, None]:
        closing = FOREVER_US
        if given_rows is not None:
            open_sessions = oracle(kept)
            timely = [row for row in given_rows if is_timely(row, open_sessions, watermark, lateness)]
            late.append(len(given_rows) - len(timely))
            kept += timely
            newest = max([*(row[2] for row in given_rows), *([] if newest is None else [newest])], default=None)
            closing = None if newest is None else max(newest - delay, -(10**9) if watermark is None else watermark)
        for (user, start), value in oracle(kept).items():
            if closing is not None and value[0] + lateness <= closing:
                emitted.append(((user, start), value))
                kept = [row for row in kept if not (row[0] == user and start <= row[2] < value[0])]
        watermark = closing
    return emitted, late


def is_timely(row, open_sessions, watermark, lateness):
    if watermark is None or row[2] + GAP + lateness > watermark:
        return True
    return any(user == row[0] and start <= row[2] < value[0] for (user, start), value in open_sessions.items())
