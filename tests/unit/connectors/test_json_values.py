"""JSON values decoded all at once are what they are one by one."""

import json

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resurge.connectors.json_lines import _decode_one_by_one, decode_values

SCHEMA = pl.Schema({"at": pl.Datetime("us"), "n": pl.Int64, "x": pl.Float64, "tags": pl.List(pl.String), "day": pl.Date})
TIMES = st.one_of(
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.datetimes().map(lambda moment: moment.isoformat(sep=" ")),
    st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
    st.sampled_from(
        ["2024-01-01", "2024-01-01T10", "2024-01-01T10:20", "2024-02-30T00:00:00", "2024-01-01T00:00:00.1234567", ""]
    ),
)
FIELDS = {
    "at": TIMES,
    "n": st.one_of(st.integers(-(2**70), 2**70), st.just("1"), st.just(1.5)),
    "x": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-5, 5)),
    "tags": st.lists(st.one_of(st.text('aé"', max_size=3), st.none()), max_size=3),
    "day": st.dates().map(str),
    "other": st.integers(),
}
ROWS = st.fixed_dictionaries({}, optional={name: st.one_of(kind, st.none()) for name, kind in FIELDS.items()})
VALUES = st.one_of(
    ROWS.map(lambda row: json.dumps(row).encode()), st.sampled_from([None, b"", b"{", b"null", b"[]", b"\xff", b"{}\n"])
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ROWS.map(lambda row: json.dumps(row).encode()), max_size=5), VALUES)
def test_neighbours_do_not_change_how_a_value_is_read(values, last):
    """Whether all values are good decides only how fast they are decoded."""
    good, bad = decode_values([*values, last], SCHEMA)
    wanted, problems = _decode_one_by_one([*values, last], SCHEMA)
    assert good.equals(wanted, null_equal=True)
    assert bad == problems
    assert good.height + len(bad) == len(values) + 1
