"""User-defined operators against the same logic on plain dicts."""

from datetime import datetime, timedelta

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from resurge.model.operator import StreamShape
from resurge.operators.keyed_process import KeyedProcess
from resurge.operators.keyed_state import list_of, map_of, value_of
from resurge.operators.table_process import TableProcess
from tests.support.operator_runner import FOREVER_US, Epoch, run_epochs

SCHEMA = pl.Schema({"user": pl.String(), "word": pl.String(), "at": pl.Datetime("us")})
SHAPE = StreamShape(SCHEMA, "at")
OUTPUT = pl.Schema({"user": pl.String(), "event": pl.String(), "at": pl.Datetime("us"), "count": pl.Int64()})
FIELDS = (("total", value_of(pl.Int64)), ("recent", list_of(pl.String)), ("words", map_of(pl.String, pl.Int64)))
WAIT = 7

row = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["x", "y", "clear", "cancel"]), st.integers(0, 12))
epochs = st.lists(st.tuples(st.lists(row, max_size=6), st.booleans()), max_size=6)


def microseconds(time):
    return (time - datetime(1970, 1, 1)) // timedelta(microseconds=1)


class Counting:
    """Counts words, says so a while after each row, and once more after that; "clear" and "cancel" take things back."""

    def on_rows(self, key, rows, state, timers):
        for _, word, at in rows.iter_rows():
            if word == "clear":
                state.clear()
            elif word == "cancel":
                timers.delete(at + timedelta(microseconds=WAIT))
            else:
                state["total"] = (state["total"] or 0) + 1
                state["recent"].append(word)
                state["words"][word] = state["words"].get(word, 0) + 1
                timers.set(at + timedelta(microseconds=WAIT))
            yield {"user": key[0], "event": "row", "at": at, "count": state["total"]}

    def on_timer(self, key, time, state, timers):
        if microseconds(time) % 3 == 0:
            timers.set(time + timedelta(microseconds=1))
        described = ",".join([*state["recent"], *(f"{word}={count}" for word, count in state["words"].items())])
        state["recent"].clear()
        return [{"user": key[0], "event": described, "at": time, "count": state["total"]}]


def plain(cut, delay):
    """The same in one loop over dicts: in each epoch, rows and timers up to the watermark in the order of event time."""
    output, content, timers, rows, newest, reached = [], {}, set(), [], None, None
    for given_rows in [*cut, None]:
        rows += given_rows or []
        newest = max([item[2] for item in given_rows or []] + ([] if newest is None else [newest]), default=None)
        begun, reached = (
            reached,
            FOREVER_US if given_rows is None else None if newest is None else max(newest - delay, reached or -99),
        )
        while reached is not None:
            row = min((item for item in rows if item[2] <= reached), key=lambda item: item[2], default=None)
            # What is late comes at once, and so do timers for times that had been reached before.
            now = reached if row is None else max(row[2], begun if begun is not None else row[2])
            due = min(
                (timer for timer in timers if timer[0] <= (reached if row is None else row[2])), key=lambda t: t[0], default=None
            )
            if due is not None:
                output += fired(due, content, timers)
            elif row is not None:
                rows.remove(row)
                output += took(row, content, timers)
                while overdue := sorted((timer for timer in timers if timer[0] <= now), key=lambda timer: timer[0]):
                    output += fired(overdue[0], content, timers)
            else:
                break
    return output


def took(row, content, timers):
    """What the handler does with a row."""
    user, word, at = row
    total, recent, words = content.setdefault(user, [None, [], {}])
    if word == "clear":
        content[user] = [None, [], {}]
    elif word == "cancel":
        timers.discard((at + WAIT, user))
    else:
        words[word] = words.get(word, 0) + 1
        content[user] = [(total or 0) + 1, [*recent, word], words]
        timers.add((at + WAIT, user))
    return [(user, "row", at, content[user][0])]


def fired(timer, content, timers):
    """What the handler does with a timer."""
    time, user = timer
    timers.remove(timer)
    if time % 3 == 0:
        timers.add((time + 1, user))
    total, recent, words = content[user]
    content[user][1] = []
    return [(user, ",".join([*recent, *(f"{word}={n}" for word, n in words.items())]), time, total)]


def ran(cut, delay, restored=()):
    """What the operator makes of rows cut into epochs, and of the end of the input."""
    operator = KeyedProcess("counting", ("words",), ("user",), Counting, OUTPUT, FIELDS, time="at")
    runs = [Epoch((pl.DataFrame(rows, schema=SCHEMA, orient="row"),), restored=n in restored) for n, rows in enumerate(cut)]
    result = run_epochs(operator, [SHAPE], [*runs, Epoch((pl.DataFrame(schema=SCHEMA),), FOREVER_US)], delay)
    assert result.state["timers"].rows().height == result.state["waiting"].rows().height == 0
    return [output.with_columns(pl.col("at").dt.epoch("us")).rows() for output in result.outputs]


@settings(max_examples=100, deadline=None)
@given(epochs, st.integers(0, 20))
def test_keyed_process_is_the_loop_over_dicts(cut, delay):
    """State, timers and output are those of the loop, for late rows too."""
    outputs = ran([rows for rows, _ in cut], delay, [number for number, (_, restored) in enumerate(cut) if restored])
    found = [item for rows in outputs for item in rows]
    expected = plain([rows for rows, _ in cut], delay)
    # Among equal times the order of keys is fixed, but not the loop's.
    for user in ("a", "b", None):
        assert [item for item in found if item[0] == user] == [item for item in expected if item[0] == user]


late_by = st.integers(0, 5)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "clear", "cancel"]), late_by), max_size=25), st.data())
def test_results_do_not_depend_on_where_epochs_are_cut(drawn, data):
    """If no row is later than the delay, the output in all is the same, however rows are cut into epochs."""
    rows = [(user, word, 3 * number - late) for number, (user, word, late) in enumerate(drawn)]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)), max_size=6)))
    pieces = [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    whole, cut = ([item for output in ran(epochs_of, 5) for item in output] for epochs_of in ([rows], pieces))
    for user in "ab":
        assert [item for item in cut if item[0] == user] == [item for item in whole if item[0] == user]


def running_counts(state, rows):
    """Count per user, forgetting users that say "clear"."""
    counts = rows.group_by("user", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("new"), (pl.col("word") == "clear").any()
    )
    merged = counts.join(state, on="user", how="left", nulls_equal=True, maintain_order="left")
    merged = merged.with_columns(pl.col("new") + pl.col("count").fill_null(0))
    return merged.filter(~pl.col("word")).select("user", pl.col("new").alias("count")), merged.select(
        "user", pl.col("new").alias("n")
    )


@settings(max_examples=30, deadline=None)
@given(epochs)
def test_table_process_keeps_what_the_function_returns(cut):
    """Returned rows replace those of the keys present; keys left out are forgotten; other keys stay."""
    output, columns = pl.Schema({"user": pl.String(), "n": pl.Int64()}), pl.Schema({"count": pl.Int64()})
    operator = TableProcess("counting", ("words",), ("user",), running_counts, output, columns)
    runs = [Epoch((pl.DataFrame(rows, schema=SCHEMA, orient="row"),), restored=restored) for rows, restored in cut]
    result = run_epochs(operator, [SHAPE], runs)
    content = {}
    for (rows, _), out in zip(cut, result.outputs, strict=True):
        users = dict.fromkeys(item[0] for item in rows)
        counts = {user: content.get(user, 0) + sum(item[0] == user for item in rows) for user in users}
        cleared = {item[0] for item in rows if item[1] == "clear"}
        content = {user: n for user, n in {**content, **counts}.items() if user not in cleared}
        assert out.rows() == list(counts.items())
    assert dict(result.state["state"].rows().rows()) == content
