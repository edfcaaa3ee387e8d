"""However a text file is cut into epochs, and whichever path parses it, its good and bad rows are the same."""

import csv
import io
import tempfile
from pathlib import Path

import polars as pl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from resurge.connectors.contracts import ReadLimit
from resurge.connectors.files import files
from tests.support.source_logs import MemoryLog

SCHEMA = pl.Schema({"id": pl.Int64, "name": pl.String})
fields = st.text(st.sampled_from('ab1 ,"\n\r\t;é'), max_size=6)
raw_text = st.text(st.sampled_from('a1,"\n\r'), max_size=40)


def read_all(path, limit):
    """All good and bad rows of a file, read in epochs of at most `limit` rows."""
    reader = files(path, schema=SCHEMA, bad_rows="route", has_header=False, max_rows_per_epoch=limit).reader(MemoryLog())
    good, bad, start = [pl.DataFrame(schema=SCHEMA)], [], reader.initialOffset()
    while (end := reader.latest_offset(start, ReadLimit())) != start:
        for split in reader.partitions(start, end):
            frame, refused = reader.read_frames(split)
            good.append(frame)
            bad.extend(refused.rows())
        start = end
    return pl.concat(good).rows(), bad


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(st.tuples(st.one_of(st.none(), st.integers(-9, 9)), fields), max_size=8), limit=st.integers(1, 5))
def test_what_a_csv_writer_wrote_is_read_back_however_it_is_cut(rows, limit):
    """Quotes, separators and line ends inside fields included."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(("" if i is None else i, name) for i, name in rows)
    expected = [(i, name) for i, name in rows if i is not None]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_bytes(text.getvalue().encode())
        for bound in (None, limit):
            good, bad = read_all(path, bound)
            assert good == expected
            assert len(bad) == len(rows) - len(expected), "a quoted empty field is text, not a missing number"


@settings(max_examples=100, deadline=None)
@given(text=raw_text, limit=st.integers(1, 4), name=st.sampled_from(["a.csv", "a.jsonl"]))
@example(text='1,a"b\n2,"c\nd"\n', limit=1, name="a.csv")
@example(text='1,"a"b\n2,c\n', limit=1, name="a.csv")
def test_any_text_has_the_same_good_and_bad_rows_however_it_is_cut(text, limit, name):
    """Also text that no writer would write: every byte is in a good row, a bad row or a blank line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(text.encode())
        assert read_all(path, None) == read_all(path, limit)
