"""CSV and JSON lines: good rows typed, bad rows named with file, line, row and reason."""

from datetime import date, datetime

import polars as pl
import pytest

from resurge.connectors.files import files
from resurge.errors import BadRowError, SourceError

SCHEMA = pl.Schema({"id": pl.Int64, "name": pl.String, "at": pl.Datetime("us")})

CSV = """id,name,at
1,a,2024-01-01 10:00:00
x,b,2024-01-01 10:00:00

3,"two
lines, quoted",2024-01-01T10:00:00.5
4,too few
5,too,2024-01-01 10:00:00,many
6,,
7,f,yesterday
8,"",2024-01-01T12:00:00+02:00
"""

JSON = """{"id": 1, "name": "a", "at": "2024-01-01T10:00:00"}
{"id": "x", "name": "b"}

not json
{"id": 3, "extra": 1}
[1, 2]
{"id": 9223372036854775808}
{"id": 4, "name": null, "at": "2024-01-01T12:00:00+02:00"}
{"id": 5, "at": "yesterday"}
"""


def test_malformed_csv_rows_are_routed_with_their_line_and_reason(tmp_path, log, epochs):
    """Every other row is read; a quoted line end counts as a line."""
    (tmp_path / "a.csv").write_text(CSV)
    reader = files(tmp_path / "*.csv", schema=SCHEMA, bad_rows="route").reader(log)
    [(good, bad, _)] = list(epochs.run(reader, SCHEMA))
    ten = datetime(2024, 1, 1, 10)
    assert good.rows() == [
        (1, "a", ten),
        (3, "two\nlines, quoted", datetime(2024, 1, 1, 10, 0, 0, 500_000)),
        (6, None, None),
        (8, "", ten),
    ]
    path = tmp_path / "a.csv"
    assert bad.rows() == [
        (f"{path}:3", "x,b,2024-01-01 10:00:00", "column 'id' is Int64, got 'x'"),
        (f"{path}:7", "4,too few", "expected 3 fields, got 2"),
        (f"{path}:8", "5,too,2024-01-01 10:00:00,many", "expected 3 fields, got 4"),
        (f"{path}:10", "7,f,yesterday", "column 'at' is Datetime(time_unit='us', time_zone=None), got 'yesterday'"),
    ]


def test_malformed_json_lines_are_routed_with_their_line_and_reason(tmp_path, log, epochs):
    """Not JSON, not an object, a wrong type, a number too large, an instant that is none."""
    (tmp_path / "a.jsonl").write_text(JSON)
    reader = files(tmp_path / "*.jsonl", schema=SCHEMA, bad_rows="route").reader(log)
    [(good, bad, _)] = list(epochs.run(reader, SCHEMA))
    ten = datetime(2024, 1, 1, 10)
    assert good.rows() == [(1, "a", ten), (3, None, None), (4, None, ten)]
    assert bad["location"].to_list() == [f"{tmp_path / 'a.jsonl'}:{line}" for line in (2, 4, 6, 7, 9)]
    assert bad["row"].to_list()[:2] == ['{"id": "x", "name": "b"}', "not json"]
    assert "Expected `int" in bad["error"][0]


@pytest.mark.parametrize(("name", "text", "line"), [("a.csv", CSV, 3), ("a.jsonl", JSON, 2)])
def test_a_malformed_row_fails_the_job_with_file_line_and_row_named(tmp_path, log, epochs, name, text, line):
    """That is the policy unless another is chosen."""
    (tmp_path / name).write_text(text)
    reader = files(tmp_path / name, schema=SCHEMA).reader(log)
    with pytest.raises(BadRowError, match=rf"{name}:{line}: .*the row is .*more bad rows follow.*bad_rows='route'"):
        list(epochs.run(reader, SCHEMA))


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize(("name", "text"), [("a.csv", CSV), ("a.jsonl", JSON)])
def test_the_same_rows_are_good_and_bad_however_a_file_is_cut(tmp_path, log, epochs, name, text, limit):
    """Cuts fall between records, and lines keep their numbers."""
    (tmp_path / name).write_text(text)
    whole = files(tmp_path / name, schema=SCHEMA, bad_rows="route").reader(type(log)())
    cut = files(tmp_path / name, schema=SCHEMA, bad_rows="route", max_rows_per_epoch=limit).reader(log)
    [(good, bad, _)] = list(epochs.run(whole, SCHEMA))
    parts = list(epochs.run(cut, SCHEMA))
    assert pl.concat([part[0] for part in parts]).equals(good)
    assert pl.concat([part[1] for part in parts if part[1].height]).equals(bad)


def test_a_quote_that_is_never_closed_is_one_bad_row(tmp_path, log, epochs):
    """The rest of the file is in the bad row, so nothing is lost unseen."""
    (tmp_path / "a.csv").write_text('id,name,at\n1,a,\n2,"b,\n3,c,\n')
    reader = files(tmp_path / "a.csv", schema=SCHEMA, bad_rows="route").reader(log)
    [(good, bad, _)] = list(epochs.run(reader, SCHEMA))
    assert good["id"].to_list() == [1]
    assert bad.rows() == [
        (f"{tmp_path / 'a.csv'}:3", '2,"b,\n3,c,', "a quoted field is never closed, or a carriage return stands outside quotes")
    ]


def test_bytes_that_are_not_utf_8_are_bad_rows(tmp_path, log, epochs):
    """The rest of the file is good."""
    (tmp_path / "a.csv").write_bytes(b"id,name,at\r\n1,a,\r\n2,\xff,\r\n3,c,\r\n")
    (tmp_path / "a.jsonl").write_bytes(b'{"id": 1}\n{"id": 2, "name": "\xff"}\n{"id": 3}\n')
    for name in ("a.csv", "a.jsonl"):
        reader = files(tmp_path / name, schema=SCHEMA, bad_rows="route").reader(type(log)())
        [(good, bad, _)] = list(epochs.run(reader, SCHEMA))
        assert good["id"].to_list() == [1, 3]
        assert bad.height == 1 and r"\xff" in bad["row"][0]


def test_csv_columns_are_found_by_the_header_in_any_order(tmp_path, log, epochs):
    """Columns that the schema does not have are left out; a byte-order mark is no part of a name."""
    (tmp_path / "a.csv").write_bytes("\ufeffat,extra,name,id\n2024-01-01,9,é,1\n".encode())
    reader = files(tmp_path / "a.csv", schema=SCHEMA).reader(log)
    [(good, _, _)] = list(epochs.run(reader, SCHEMA))
    assert good.rows() == [(1, "é", datetime(2024, 1, 1))]


def test_csv_without_header_is_read_in_the_order_of_the_schema(tmp_path, log, epochs):
    """And its first line is a row."""
    (tmp_path / "a.csv").write_text("1,a,\n2,b,\n")
    reader = files(tmp_path / "a.csv", schema=SCHEMA, has_header=False).reader(log)
    assert [good["id"].to_list() for good, _, _ in epochs.run(reader, SCHEMA)] == [[1, 2]]


def test_a_csv_header_without_a_column_of_the_schema_is_refused(tmp_path, log, epochs):
    """The error names what the file has and what it lacks."""
    (tmp_path / "a.csv").write_text("id,title\n1,a\n")
    reader = files(tmp_path / "a.csv", schema=SCHEMA).reader(log)
    with pytest.raises(SourceError, match=r"a.csv has the columns id, title, but the schema also has name, at"):
        list(epochs.run(reader, SCHEMA))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_text_file_has_no_rows(tmp_path, log, epochs, name, content):
    """It is taken, and that is all."""
    (tmp_path / name).write_text(content)
    for limit in (None, 5):
        reader = files(tmp_path / name, schema=SCHEMA, has_header=False, max_rows_per_epoch=limit).reader(type(log)())
        assert [good.height for good, _, _ in epochs.run(reader, SCHEMA)] == [0]


TYPES = pl.Schema(
    {"flag": pl.Boolean, "small": pl.Int8, "share": pl.Float32, "price": pl.Decimal(10, 2), "day": pl.Date, "count": pl.UInt32}
)


def test_every_plain_type_is_read_from_csv_and_json(tmp_path, log, epochs):
    """Values that do not fit the type are bad rows, not nulls."""
    csv = "flag,small,share,price,day,count\ntrue,1,0.5,1.25,2024-02-29,7\nmaybe,1,,,,\n,300,,,,\n,,half,,,\n,,,,2023-02-29,\n,,,,,-1\n"
    fields = ['"flag": "maybe"', '"small": 300', '"share": "half"', '"day": "2023-02-29"', '"count": -1']
    good_line = '{"flag": true, "small": 1, "share": 0.5, "price": 1.25, "day": "2024-02-29", "count": 7}'
    (tmp_path / "a.csv").write_text(csv)
    (tmp_path / "a.jsonl").write_text("\n".join([good_line, *("{" + field + "}" for field in fields)]))
    for name in ("a.csv", "a.jsonl"):
        reader = files(tmp_path / name, schema=TYPES, bad_rows="route").reader(type(log)())
        [(good, bad, _)] = list(epochs.run(reader, TYPES))
        assert good.schema == TYPES and good.height == 1 and bad.height == 5
        assert good["day"][0] == date(2024, 2, 29) and good["flag"][0] is True and str(good["price"][0]) == "1.25"


def test_nested_json_is_read_to_nested_types(tmp_path, log, epochs):
    """Lists and structs, with column names that are no Python names."""
    schema = pl.Schema({"the tags": pl.List(pl.String), "place": pl.Struct({"x": pl.Int64, "y": pl.List(pl.Float64)})})
    (tmp_path / "a.jsonl").write_text(
        '{"the tags": ["a", null], "place": {"x": 1, "y": [1, 2.5]}}\n{"place": {}}\n{"the tags": "a"}\n'
    )
    reader = files(tmp_path / "a.jsonl", schema=schema, bad_rows="route").reader(log)
    [(good, bad, _)] = list(epochs.run(reader, schema))
    assert good.rows() == [(["a", None], {"x": 1, "y": [1.0, 2.5]}), (None, {"x": None, "y": None})]
    assert bad.height == 1
