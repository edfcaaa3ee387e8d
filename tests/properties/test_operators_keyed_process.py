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
        yield {"user": key[0], "event": "rows", "count": state["total"]}

    def on_timer(self, key, time, state, timers):
        if microseconds(time) % 3 == 0:
            timers.set(time + timedelta(microseconds=1))
        described = ",".join([*state["recent"], *(f"{word}={count}" for word, count in state["words"].items())])
        state["recent"].clear()
        return [{"user": key[0], "event": described, "at": time, "count": state["total"]}]


def plain(cut, delay):
    """The same in one loop over dicts, without columns or tables."""
    output, content, waiting, watermark, newest = [], {}, set(), None, None
    for given_rows in [*cut, None]:
        for user in dict.fromkeys(item[0] for item in given_rows or []):
            for _, word, at in [item for item in given_rows if item[0] == user]:
                total, recent, words = content.setdefault(user, [None, [], {}])
                if word == "clear":
                    content[user] = [None, [], {}]
                elif word == "cancel":
                    waiting.discard((at + WAIT, user))
                else:
                    words[word] = words.get(word, 0) + 1
                    content[user] = [(total or 0) + 1, [*recent, word], words]
                    waiting.add((at + WAIT, user))
            output.append((user, "rows", None, content[user][0]))
        if given_rows:
            newest = max([*(item[2] for item in given_rows), *([] if newest is None else [newest])])
            watermark = max([newest - delay, *([] if watermark is None else [watermark])])
        reached = FOREVER_US if given_rows is None else watermark
        while reached is not None and any(time <= reached for time, _ in waiting):
            time = min(time for time, _ in waiting)
            for user in [user for due, user in waiting if due == time]:
                waiting.remove((time, user))
                if time % 3 == 0:
                    waiting.add((time + 1, user))
                total, recent, words = content[user]
                output.append((user, ",".join([*recent, *(f"{word}={n}" for word, n in words.items())]), time, total))
                content[user][1] = []
    return output


@settings(max_examples=50, deadline=None)
@given(epochs, st.integers(0, 20))
def test_keyed_process_is_the_loop_over_dicts(cut, delay):
    """State, timers and output are those of the loop; timers come in the order of their times."""
    operator = KeyedProcess("counting", ("words",), ("user",), Counting, OUTPUT, FIELDS)
    runs = [Epoch((pl.DataFrame(rows, schema=SCHEMA, orient="row"),), restored=restored) for rows, restored in cut]
    end = Epoch((pl.DataFrame(schema=SCHEMA),), FOREVER_US)
    result = run_epochs(operator, [SHAPE], [*runs, end], delay)
    found = result.output.with_columns(pl.col("at").dt.epoch("us")).rows()
    expected = plain([rows for rows, _ in cut], delay)
    times = [[item[2] for item in out.rows() if item[2] is not None] for out in result.outputs]
    assert all(mine == sorted(mine) for mine in times)
    # Among timers of one time the order of keys is fixed, but not the loop's.
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert [item for item in found if item[1] == "rows"] == [item for item in expected if item[1] == "rows"]
    assert result.state["timers"].rows().height == 0


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
