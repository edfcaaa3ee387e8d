"""Failure traces and start-up times: what is read, what belongs together, and how each kind of bad file is refused."""

import gzip
from pathlib import Path

import pytest

from resurge.errors import ProblemError
from resurge.experiments.traces import Failure, arrival_times_s, bursts, failures

HEADER = "system,node,start,end,down_minutes,cause,nodes_in_system,same_event"


def table(folder: Path, *rows: str) -> Path:
    """A table of failures and repairs."""
    path = folder / "failures.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def failed(node: int, start: str, end: str, system: int = 18) -> str:
    """One row of the table."""
    return f"{system},{node},2002-05-06T{start}:00,2002-05-06T{end}:00,30,Hardware,1024,No"


def test_failures_of_a_table_come_in_order_of_time_with_their_repairs(tmp_path):
    """Node 1 of one system is not node 1 of another."""
    path = table(tmp_path, failed(1, "09:00", "09:30"), failed(1, "08:45", "09:15", system=19), "")
    first, second = failures(path)
    assert (first.node, second.node) == ("19-1", "18-1")
    assert (second.at_s - first.at_s, first.repaired_s - first.at_s) == (15 * 60, 30 * 60)


def test_failures_of_a_spot_cluster_are_the_machines_that_were_taken(tmp_path):
    """What is added is no failure."""
    path = tmp_path / "spot.csv"
    path.write_text("480000,add,node1\n540000,add,node2\n600000,remove,node2\n")
    assert failures(path) == [Failure("node2", 600.0)]


def test_a_gzipped_trace_is_read_whatever_its_name(tmp_path):
    """It is recognised by its first bytes."""
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(b"1000,remove,a\n"))
    assert failures(path) == [Failure("a", 1.0)]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "begins with ''; expected a header with the columns node, start and end, or rows of milliseconds"),
        ("when,who\n1,2\n", "begins with 'when,who'; expected a header"),
        (f"{HEADER}\n18,1,yesterday,2002-05-06T09:00:00,1,x,1,No\n", "line 2: expected a time such as .*, got 'yesterday'"),
        (f"{HEADER}\n18,1,2002-05-06T09:00:00\n", "line 2: expected 8 fields, got 3"),
        (f"{HEADER}\n", "has no failure; expected at least one"),
        ("1000,add,a\n", "has no failure; expected at least one"),
        ("1000,add,a\nsoon,remove,a\n", "line 2: the time must be a number, got 'soon'"),
        ("1000,add,a\n-5,remove,a\n", "line 2: the time must be at least 0, got -5.0"),
        ("1000,add,a\n2000,moved,a\n", "line 2: expected milliseconds, add or remove, and a node, got '2000,moved,a'"),
    ],
)
def test_a_trace_that_does_not_fit_is_refused_in_one_line(tmp_path, content, told):
    """The line says which file, which row, and what was expected."""
    path = tmp_path / "trace.csv"
    path.write_text(content)
    with pytest.raises(ProblemError, match=told) as refused:
        failures(path)
    assert "trace.csv" in str(refused.value) and "\n" not in str(refused.value)


def test_files_that_are_absent_damaged_or_binary_are_refused(tmp_path):
    """As every other file that a user names."""
    with pytest.raises(ProblemError, match=r"no such failure trace: .*absent'; give the path of a CSV file"):
        failures(tmp_path / "absent")
    (tmp_path / "torn.gz").write_bytes(gzip.compress(b"1000,remove,a\n" * 99)[:-9])
    with pytest.raises(ProblemError, match="is a damaged gzip file"):
        failures(tmp_path / "torn.gz")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProblemError, match=r"file of start-up times .* is not CSV: it is not UTF-8 text"):
        arrival_times_s(tmp_path / "binary")
    with pytest.raises(ProblemError, match="cannot read file of start-up times"):
        arrival_times_s(tmp_path)


def test_arrival_times_are_read_from_a_table_or_a_list(tmp_path):
    """A column called seconds, or one number a line."""
    table, plain = tmp_path / "table.csv", tmp_path / "plain.txt"
    table.write_text("type,seconds\nsmall,60.5\nlarge,42\n")
    plain.write_text("60.5\n42\n")
    assert arrival_times_s(table) == arrival_times_s(plain) == [60.5, 42.0]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "has no time; expected a column called seconds, or one number a line"),
        ("type,seconds\n", "has no time"),
        ("type,minutes\nsmall,1\n", "line 1: the seconds must be a number, got 'type'"),
        ("type,seconds\nsmall\n", "line 2: the seconds must be a number, got ''"),
        ("60\nnan\n", "line 2: the seconds must be a number, got NaN"),
        ("60\n-1\n", "line 2: the seconds must be at least 0, got -1.0"),
    ],
)
def test_start_up_times_that_do_not_fit_are_refused_in_one_line(tmp_path, content, told):
    """The line says which file, which row, and what was expected."""
    path = tmp_path / "arrivals.csv"
    path.write_text(content)
    with pytest.raises(ProblemError, match=told) as refused:
        arrival_times_s(path)
    assert "arrivals.csv" in str(refused.value) and "\n" not in str(refused.value)


def burst_nodes(found: str, most: int = 9) -> list[str]:
    """The nodes of the bursts of a trace; one letter is a failure, a dot a minute in which nothing happens."""
    trace = [Failure(node, 60.0 * minute) for minute, nodes in enumerate(found.split(".")) for node in nodes]
    return ["".join(failure.node for failure in burst) for burst in bursts(trace, most=most, close_s=60, gap_s=180)]


def test_a_burst_begins_with_two_nodes_that_fail_close_together():
    """Others follow as long as the gaps are small; a window may begin in another one."""
    assert burst_nodes("ab...c....d") == ["abc"]
    assert burst_nodes("a..b...c") == []
    assert burst_nodes("a.bc") == ["abc", "bc"]
    assert burst_nodes("") == []


def test_a_burst_has_each_node_once_and_only_so_many():
    """A node that fails again and again by itself is no burst."""
    assert burst_nodes("a.a.a") == []
    assert burst_nodes("ab.a") == ["ab", "ba"]
    assert burst_nodes("abcde", most=2) == ["ab", "bc", "cd", "de"]
