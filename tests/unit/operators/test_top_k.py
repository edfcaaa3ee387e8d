"""Rankings: when they come out, and what is refused."""

from dataclasses import replace

import polars as pl
import pytest

from resurge.errors import TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.top_k import TopK
from tests.support.operator_runner import Epoch, run_epochs

SCHEMA = pl.Schema({"city": pl.String(), "tag": pl.String(), "rows": pl.Int64(), "until": pl.Datetime("us")})
SHAPE = StreamShape(SCHEMA, "until")
TOP = TopK("top", ("counts",), ("city",), "rows", 2, ("tag",))


def epoch(*rows, closing_us=None):
    return Epoch((pl.DataFrame(rows, schema=SCHEMA, orient="row"),), closing_us, restored=True)


def plain(output):
    return output.select("city", "rank", "tag", "rows").rows()


def test_only_groups_whose_ranking_changed_come_out():
    """A row below the k-th place changes nothing; one city does not bring out another."""
    epochs = [epoch(("x", "a", 5, 0), ("x", "b", 4, 0), ("y", "a", 1, 0)), epoch(("x", "c", 3, 0)), epoch(("y", "b", 9, 0))]
    result = run_epochs(TOP, [SHAPE], epochs)
    assert plain(result.outputs[0]) == [("x", 1, "a", 5), ("x", 2, "b", 4), ("y", 1, "a", 1)]
    assert plain(result.outputs[1]) == []
    assert plain(result.outputs[2]) == [("y", 1, "b", 9), ("y", 2, "a", 1)]


def test_row_outside_the_ranking_moves_up_when_a_ranked_one_falls():
    """The row is found again though its own epoch is long past."""
    epochs = [epoch(("x", "a", 5, 0), ("x", "b", 4, 0), ("x", "c", 3, 0)), epoch(("x", "a", 1, 0))]
    assert plain(run_epochs(TOP, [SHAPE], epochs).outputs[1]) == [("x", 1, "b", 4), ("x", 2, "c", 3)]


def test_equal_values_are_ranked_by_identity_and_the_last_row_of_an_identity_counts():
    """So the ranking does not depend on which came first."""
    epochs = [epoch(("x", "c", 4, 0), ("x", "b", 4, 0), ("x", "a", 9, 0), ("x", "a", 4, 0))]
    assert plain(run_epochs(TOP, [SHAPE], epochs).output) == [("x", 1, "a", 4), ("x", 2, "b", 4)]


def test_smallest_first():
    """The other way round."""
    epochs = [epoch(("x", "c", 3, 0), ("x", "b", None, 0), ("x", "a", 9, 0))]
    assert plain(run_epochs(replace(TOP, descending=False), [SHAPE], epochs).output) == [("x", 1, "c", 3), ("x", 2, "a", 9)]


def test_expired_groups_leave_no_state():
    """A group is forgotten when the watermark reaches its time, and rows for it are late from the next epoch on."""
    expiring = replace(TOP, key=("until", "city"), expire="until")
    result = run_epochs(
        expiring, [SHAPE], [epoch(("x", "a", 1, 10), closing_us=10), epoch(("x", "a", 1, 10), ("x", "a", 1, None))]
    )
    assert result.late_rows == (0, 2)
    assert all(table.rows().height == 0 for table in result.state.values())
    assert expiring.determinism is Determinism.CONVERGENT
    assert TOP.determinism is Determinism.DETERMINISTIC


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"by": "size"}, "uses column 'size'"),
        ({"key": ("town",)}, "uses column 'town'"),
        ({"k": 0}, "a k of at least 1"),
        ({"identity": ()}, "at least one identity column"),
        ({"expire": "until"}, "expected a Datetime column among"),
        ({"expire": "city"}, "expected a Datetime column among"),
    ],
)
def test_ranking_that_cannot_run_is_refused(change, message):
    """Before anything runs, with what was expected."""
    with pytest.raises(TopologyError, match=message):
        replace(TOP, **change).shape([SHAPE])


def test_input_with_a_rank_column_is_refused():
    """The output would have two."""
    with pytest.raises(TopologyError, match="has a column 'rank'"):
        TOP.shape([StreamShape(pl.Schema({**SCHEMA, "rank": pl.Int64()}), None)])
