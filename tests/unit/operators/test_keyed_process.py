"""User-defined operators: state, timers, what they may return, and what is refused."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from resurge.errors import JobError, TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.base import Batch, EpochContext
from resurge.operators.keyed_process import MOST_OVERDUE, KeyedProcess
from resurge.operators.keyed_state import as_microseconds, list_of, map_of, value_of
from resurge.operators.sorted_runs import TableDelta
from resurge.operators.state import KeyedTable
from resurge.operators.table_process import TableProcess
from tests.support.operator_runner import Epoch, run_epochs

SCHEMA = pl.Schema({"user": pl.String(), "amount": pl.Int64(), "at": pl.Datetime("us")})
SHAPE = StreamShape(SCHEMA, "at")
OUTPUT = pl.Schema({"user": pl.String(), "total": pl.Int64()})
FIELDS = (("total", value_of(pl.Int64)), ("recent", list_of(pl.Int64)), ("seen", map_of(pl.Int64, pl.String)))


def epoch(*rows, closing_us=None):
    return Epoch((frame(*rows),), closing_us, restored=True)


def frame(*rows):
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def process(handler, **changes):
    return replace(KeyedProcess("mine", ("given",), ("user",), handler, OUTPUT, FIELDS, time="at"), **changes)


def totals(key, rows, state, timers):
    """A running total per user."""
    state["total"] = (state["total"] or 0) + rows["amount"].sum()
    return [{"user": key[0], "total": state["total"]}]


class Reminder:
    """Says a user's total once, some time after the first row."""

    def on_rows(self, key, rows, state, timers):
        if state["total"] is None:
            timers.set(rows["at"][0])
        state["total"] = (state["total"] or 0) + rows["amount"].sum()

    def on_timer(self, key, time, state, timers):
        yield {"user": f"{key[0]} at {as_microseconds(time)}", "total": state["total"]}
        state.clear()


def test_keys_come_in_the_order_in_which_they_first_appear():
    """Within an epoch and from one epoch to the next."""
    result = run_epochs(process(totals), [SHAPE], [epoch(("b", 1, 0), ("a", 2, 0), ("b", 3, 0)), epoch(("a", 5, 0))])
    assert result.output.rows() == [("b", 4), ("a", 2), ("a", 7)]


def test_only_changed_keys_are_written():
    """A key that was only read is not in the delta."""

    def reading(key, rows, state, timers):
        if key[0] == "writes":
            state["recent"].append(1)
        assert list(state["recent"]) in ([], [1])

    operator = process(reading)
    tables = {name: KeyedTable(spec) for name, spec in operator.tables([SHAPE]).items()}
    outcome = operator.process(tables, [Batch(SCHEMA, (frame(("reads", 1, 0), ("writes", 1, 0)),))], EpochContext(0, None))
    assert outcome.changes["state"].upserts.get_column("user").to_list() == ["writes"]
    assert outcome.changes["state"].deletes.height == 0


def test_key_whose_state_is_cleared_leaves_nothing():
    """Nothing to keep is no row."""
    result = run_epochs(process(Reminder), [SHAPE], [epoch(("a", 1, 5)), epoch(closing_us=99)])
    assert result.output.rows() == [("a at 5", 1)]
    assert all(table.rows().height == 0 for table in result.state.values())


class Later(Reminder):
    """Says a user's total two microseconds after the first row."""

    def on_rows(self, key, rows, state, timers):
        if state["total"] is None:
            timers.set(rows["at"][0] + timedelta(microseconds=2))
        state["total"] = (state["total"] or 0) + rows["amount"].sum()


def test_timer_fires_once_when_the_watermark_reaches_it_and_sees_the_rows_before():
    """Those before its time and no others, in whichever epochs and order they come, and however far the watermark goes at once."""
    rows = [("a", 1, 5), ("a", 4, 7), ("b", 1, 4), ("a", 2, 6), ("b", 8, 5), ("b", 16, 6)]
    fired = [("b at 6", 9), ("a at 7", 3), ("b at 8", 16), ("a at 9", 4)]
    at_once = run_epochs(process(Later), [SHAPE], [epoch(*rows, closing_us=99)])
    assert at_once.output.rows() == fired
    in_many = [*(epoch(row) for row in rows), epoch(closing_us=6), epoch(closing_us=7), epoch(closing_us=90), epoch()]
    result = run_epochs(process(Later), [SHAPE], in_many, delay_us=50)
    assert [output.rows() for output in result.outputs] == [*([[]] * 6), fired[:1], fired[1:2], fired[2:], []]


def test_rows_wait_until_the_watermark_reaches_them_where_there_are_timers():
    """So that timers of earlier times come first; without timers rows are given at once."""
    times = []

    class Noting(Reminder):
        def on_rows(self, key, rows, state, timers):
            times.append((rows.height, as_microseconds(rows["at"][0]), as_microseconds(timers.watermark)))

    epochs = [
        epoch(("a", 1, 8), ("a", 1, 5), ("a", 1, 8)),
        epoch(closing_us=5),
        epoch(("a", 1, 3), closing_us=7),
        epoch(closing_us=8),
    ]
    run_epochs(process(Noting), [SHAPE], [replace(one, restored=False) for one in epochs], delay_us=50)
    assert times == [(1, 5, 5), (1, 3, 5), (1, 8, 8), (1, 8, 8)]
    seen = []
    run_epochs(process(lambda key, rows, state, timers: seen.append(rows.height)), [SHAPE], [replace(epochs[0], restored=False)])
    assert seen == [3]


def test_timer_for_a_time_already_reached_fires_in_the_same_epoch():
    """It is late, not lost."""
    result = run_epochs(process(Reminder), [SHAPE], [epoch(closing_us=50), epoch(("a", 1, 5))])
    assert result.outputs[1].rows() == [("a at 5", 1)]


class OneByOne:
    """A running total per user, told with each row."""

    def on_row(self, key, row, state, timers):
        state["total"] = (state["total"] or 0) + row["amount"]
        yield {"user": f"{key[0]} {as_microseconds(row['at'])}", "total": state["total"]}


class OneByOneWithTimers(OneByOne):
    """The same with a timer after each row."""

    def on_row(self, key, row, state, timers):
        timers.set(as_microseconds(row["at"]) + 1)
        yield from super().on_row(key, row, state, timers)

    def on_timer(self, key, time, state, timers):
        yield {"user": f"{key[0]} timer", "total": state["total"]}


def test_a_handler_may_take_rows_one_by_one_as_dicts():
    """In the order in which they came, or with timers in the order of event time."""
    rows = [("b", 1, 6), ("a", 2, 4), ("b", 4, 5)]
    result = run_epochs(process(OneByOne), [SHAPE], [epoch(*rows)])
    assert result.output.rows() == [("b 6", 1), ("a 4", 2), ("b 5", 5)]
    timed = run_epochs(process(OneByOneWithTimers), [SHAPE], [epoch(*rows), epoch(closing_us=9)])
    wanted = [("a 4", 2), ("a timer", 2), ("b 5", 4), ("b timer", 4), ("b 6", 5), ("b timer", 5)]
    assert timed.output.rows() == wanted


class Fickle:
    """Sets timers at 5, 6 and 7; amount 0 takes the first back, and the second takes the third back."""

    def on_rows(self, key, rows, state, timers):
        for amount in rows["amount"]:
            if amount:
                for time in (5, 6, 7):
                    timers.set(time)
            else:
                timers.delete(5)

    def on_timer(self, key, time, state, timers):
        if as_microseconds(time) == 6:
            timers.delete(7)
        return [{"user": key[0], "total": as_microseconds(time)}]


@pytest.mark.parametrize("closing_us", [3, 9])
def test_deleted_timer_does_not_fire(closing_us):
    """Whether it was set in this epoch or before, is due now or later, and is deleted by rows or by another timer."""
    at_once = [epoch(("a", 1, 0), ("a", 0, 0), closing_us=closing_us), epoch(closing_us=9)]
    in_two = [epoch(("a", 1, 0)), epoch(("a", 0, 0), closing_us=closing_us), epoch(closing_us=9)]
    for epochs in (at_once, in_two):
        assert run_epochs(process(Fickle), [SHAPE], epochs, delay_us=50).output.rows() == [("a", 6)]


def test_a_timer_may_set_others_for_times_already_reached():
    """They fire at once, the earliest first."""

    class Backwards(Reminder):
        def on_timer(self, key, time, state, timers):
            at = as_microseconds(time)
            if at > 3:
                timers.set(at - 1)
            return [{"user": key[0], "total": at}]

    result = run_epochs(process(Backwards), [SHAPE], [epoch(("a", 1, 5), ("b", 1, 6)), epoch(closing_us=9)])
    assert result.output.rows() == [("a", 5), ("a", 4), ("a", 3), ("b", 6), ("b", 5), ("b", 4), ("b", 3)]


def test_timer_that_sets_itself_again_and_again_is_refused():
    """It would fire for ever; that many keys have overdue timers at one time is no reason."""

    class Endless(Reminder):
        def on_timer(self, key, time, state, timers):
            if key[0] == "endless":
                timers.set(time)

    many = [(f"user{number}", 1, 5) for number in range(MOST_OVERDUE + 1)]
    run_epochs(process(Endless), [SHAPE], [Epoch((frame(*many),), 9)])
    with pytest.raises(JobError, match=r"key \('endless',\) for .* or before.*it would fire for ever"):
        run_epochs(process(Endless), [SHAPE], [Epoch((frame(("endless", 1, 5)),), 9)])


def test_lists_and_maps_survive_from_epoch_to_epoch():
    """In their own order, with what was taken out gone."""
    seen = []

    def collecting(key, rows, state, timers):
        for amount in rows["amount"]:
            state["recent"].append(amount)
            state["seen"][amount] = f"#{amount}"
            state["seen"].pop(amount - 2, None)
        seen.append((list(state["recent"]), dict(state["seen"])))
        if len(state["recent"]) > 2:
            del state["recent"]

    run_epochs(process(collecting), [SHAPE], [Epoch((frame(("a", n, 0)),)) for n in (1, 2, 3, 4)])
    assert seen == [([1], {1: "#1"}), ([1, 2], {1: "#1", 2: "#2"}), ([1, 2, 3], {2: "#2", 3: "#3"}), ([4], {3: "#3", 4: "#4"})]


def test_frames_and_dicts_may_be_mixed_and_keep_their_order():
    """The output is in the order of the calls."""

    def mixed(key, rows, state, timers):
        made = {"user": key[0], "total": 1}
        return pl.DataFrame([made], schema=OUTPUT) if key[0] == "b" else [made]

    result = run_epochs(process(mixed), [SHAPE], [epoch(("a", 1, 0), ("b", 1, 0), ("c", 1, 0))])
    assert result.output.get_column("user").to_list() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([{"who": "a"}], "columns among user, total"),
        (["a"], "expected a dict"),
        ([{"total": "many"}], "expected values of type Int64"),
        (pl.DataFrame({"user": ["a"]}), "select and cast"),
    ],
)
def test_output_that_does_not_fit_is_refused_and_the_operator_named(made, message):
    """With what was expected."""
    with pytest.raises(JobError, match=message) as refusal:
        run_epochs(process(lambda key, rows, state, timers: made), [SHAPE], [epoch(("a", 1, 0))])
    assert "'mine'" in str(refusal.value)


def test_failing_function_is_reported_with_the_key():
    """The key is what one needs to try again."""

    def failing(key, rows, state, timers):
        return [{"user": 1 / 0}]

    with pytest.raises(JobError, match=r"on_rows of keyed process 'mine' failed for key \('a',\): ZeroDivisionError"):
        run_epochs(process(failing), [SHAPE], [epoch(("a", 1, 0))])


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (lambda key, rows, state, timers: state["unknown"], "was not declared"),
        (lambda key, rows, state, timers: timers.set(3), "has no on_timer"),
    ],
)
def test_undeclared_state_and_timers_without_handler_are_refused(handler, message):
    """What is used must be declared."""
    with pytest.raises(JobError, match=message):
        run_epochs(process(handler), [SHAPE], [epoch(("a", 1, 0))])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": ("who",)}, "uses column 'who'"),
        ({"key": ()}, "has no key"),
        ({"fields": ()}, "at least one field"),
        ({"fields": (("total", pl.Int64),)}, "each made with value_of"),
        ({"fields": (("user", value_of(pl.Int64)),)}, "name of a key column"),
        ({"handler": 3}, "expected a function"),
        ({"handler": type("Both", (Reminder, OneByOne), {})}, "either such a method on_rows or a method on_row"),
        ({"event_time": "total"}, "expected Datetime"),
        ({"output": pl.Schema({})}, "no output columns"),
    ],
)
def test_keyed_process_that_cannot_run_is_refused(change, message):
    """Before anything runs, with what was expected."""
    with pytest.raises(TopologyError, match=message):
        replace(process(totals), **change).shape([SHAPE])


def test_timers_need_event_time_and_a_plain_function_does_not():
    """Without event time there is no watermark."""
    untimed = StreamShape(SCHEMA, None)
    assert process(totals).shape([untimed]).schema == OUTPUT
    with pytest.raises(TopologyError, match="needs event time"):
        process(Reminder).shape([untimed])


def test_determinism_is_what_the_user_declares():
    """Deterministic unless said otherwise."""
    assert process(totals).determinism is Determinism.DETERMINISTIC
    assert process(totals, declared=Determinism.ARBITRARY).determinism is Determinism.ARBITRARY


def test_times_are_taken_with_and_without_time_zone():
    """One with a zone is brought to UTC."""
    assert (
        as_microseconds(datetime(1970, 1, 1, 0, 0, 1)) == as_microseconds(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1_000_000
    )
    with pytest.raises(JobError, match="expected a datetime or whole microseconds"):
        as_microseconds("noon")


def table_process(function):
    return TableProcess("mine", ("given",), ("user",), function, OUTPUT, pl.Schema({"total": pl.Int64()}))


def summed(state, rows):
    """A running total per user, of which users without amount are left as they are."""
    more = rows.group_by("user", maintain_order=True).agg(pl.col("amount").sum().alias("total"))
    new = pl.concat([state, more]).group_by("user", maintain_order=True).agg(pl.col("total").sum())
    return new, new


def test_table_process_writes_only_rows_that_differ():
    """A user whose total stays is not written again."""
    operator = table_process(summed)
    tables = {name: KeyedTable(spec) for name, spec in operator.tables([SHAPE]).items()}
    tables["state"] = tables["state"].apply(TableDelta(pl.DataFrame({"user": ["a", "b"], "total": [1, 2]})))
    outcome = operator.process(tables, [Batch(SCHEMA, (frame(("a", 0, 0), ("b", 5, 0)),))], EpochContext(0, None))
    assert outcome.changes["state"].upserts.rows() == [("b", 7)]
    assert outcome.output.rows() == [("a", 1), ("b", 7)]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda state, rows: state, "expected two frames"),
        (lambda state, rows: (rows, rows), "the state of table process 'mine' gave columns"),
        (lambda state, rows: (pl.DataFrame({"user": ["z"], "total": [1]}), state), "a key without input"),
        (lambda state, rows: (pl.DataFrame({"user": ["a", "a"], "total": [1, 2]}), state), "two state rows for a key"),
    ],
)
def test_table_process_that_returns_something_else_is_refused(function, message):
    """With what was expected."""
    with pytest.raises(JobError, match=message):
        run_epochs(table_process(function), [SHAPE], [epoch(("a", 1, 0))])
