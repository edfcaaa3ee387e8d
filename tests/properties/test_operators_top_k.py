"""Rankings against sorting everything again."""

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from resurge.model.operator import StreamShape
from resurge.operators.top_k import TopK
from tests.support.operator_runner import FOREVER_US, Epoch, run_epochs

SCHEMA = pl.Schema({"window_end": pl.Datetime("us"), "tag": pl.String(), "rows": pl.Int64(), "city": pl.String()})
SHAPE = StreamShape(SCHEMA, "window_end")

row = st.tuples(
    st.integers(0, 6), st.sampled_from(["a", "b", "c", "d", None]), st.integers(0, 9) | st.none(), st.sampled_from("xy")
)
epochs = st.lists(st.tuples(st.lists(row, max_size=7), st.booleans()), max_size=6)


def frame(given_rows):
    return pl.DataFrame(given_rows, schema=SCHEMA, orient="row")


def ranking(newest, k, descending):
    """Rows best first; equal values by identity; nulls last everywhere."""

    def place(item):
        tag, value = item[1], item[2]
        return (value is None, 0 if value is None else (-value if descending else value), tag is None, tag or "")

    return sorted(newest, key=place)[:k]


@settings(max_examples=30, deadline=None)
@given(epochs, st.integers(1, 4), st.booleans())
def test_ranking_per_group_is_that_of_the_newest_rows(cut, k, descending):
    """After each epoch, exactly the groups whose ranking changed come out, whole and right."""
    operator = TopK("top", ("counts",), ("city",), "rows", k, ("tag",), descending)
    result = run_epochs(operator, [SHAPE], [Epoch((frame(given_rows),), restored=restored) for given_rows, restored in cut])
    newest, known = {}, {}
    for (given_rows, _), output in zip(cut, result.outputs, strict=True):
        for item in given_rows:
            newest[item[3], item[1]] = item
        expected = {
            city: ranking([item for (group, _), item in newest.items() if group == city], k, descending)
            for city in {item[3] for item in given_rows}
        }
        changed = {city: best for city, best in expected.items() if known.get(city) != best}
        known.update(changed)
        assert by_group(output, "city") == changed


@settings(max_examples=25, deadline=None)
@given(epochs, st.integers(1, 3), st.integers(0, 3))
def test_expired_groups_are_forgotten_and_their_rows_counted(cut, k, lateness):
    """A group lives until the watermark reaches its time plus the lateness."""
    operator = TopK("top", ("counts",), ("window_end",), "rows", k, ("tag", "city"), expire="window_end", lateness_us=lateness)
    runs = [Epoch((frame(given_rows),), restored=restored) for given_rows, restored in cut]
    result = run_epochs(operator, [SHAPE], [*runs, Epoch((frame([]),), FOREVER_US)], delay_us=2)
    watermark, newest, late = None, {}, []
    for (given_rows, _), output in zip(cut, result.outputs, strict=False):
        timely = [item for item in given_rows if watermark is None or item[0] > watermark - lateness]
        late.append(len(given_rows) - len(timely))
        newest.update({(item[0], item[1], item[3]): item for item in timely})
        for time, best in by_group(output, "window_end").items():
            in_group = [item for item in newest.values() if item[0] == time]
            assert [item[2] for item in best] == [item[2] for item in ranking(in_group, k, True)]
        times = [item[0] - 2 for item in given_rows]
        watermark = max([*times, *([] if watermark is None else [watermark])], default=None)
    assert list(result.late_rows[:-1]) == late
    assert all(table.rows().height == 0 for table in result.state.values())


@settings(max_examples=20, deadline=None)
@given(epochs, st.integers(1, 3))
def test_without_group_columns_everything_is_one_group(cut, k):
    """`per=()` ranks all rows together."""
    operator = TopK("top", ("counts",), (), "rows", k, ("tag",))
    result = run_epochs(operator, [SHAPE], [Epoch((frame(given_rows),), restored=restored) for given_rows, restored in cut])
    newest, last = {}, []
    for (given_rows, _), output in zip(cut, result.outputs, strict=True):
        newest.update({item[1]: item for item in given_rows})
        best = ranking(list(newest.values()), k, True)
        found = output.with_columns(pl.col("window_end").dt.epoch("us"))
        assert found.drop("rank").rows() == ([] if best == last else best)
        assert found.get_column("rank").to_list() == list(range(1, found.height + 1))
        last = best


def by_group(output, column):
    """Rows of each group in the order of their ranks, which must be 1, 2, ..."""
    groups = {}
    for item in output.with_columns(pl.col("window_end").dt.epoch("us")).iter_rows(named=True):
        members = groups.setdefault(item[column], [])
        members.append((item["window_end"], item["tag"], item["rows"], item["city"]))
        assert item["rank"] == len(members)
    return groups
