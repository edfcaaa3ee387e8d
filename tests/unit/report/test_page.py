"""The report is one file, complete in itself, and says what telemetry says."""

import re
from html.parser import HTMLParser

from resurge.report import Table, write_report
from resurge.report.page import render
from resurge.telemetry import metrics
from resurge.telemetry.events import JobStopped, LoadMeasured, MoveEnded, NodeLoad, NodeNamed, Warned
from tests.support.telemetry import START_S, epoch, started, steady_run


class Tags(HTMLParser):
    """Every tag with its attributes, and that open and close tags fit."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def tags_of(html: str) -> list[tuple[str, dict[str, str | None]]]:
    """The tags of a page whose nesting is right."""
    parser = Tags()
    parser.feed(html)
    assert parser.open == []
    return parser.found


def test_report_is_written_where_asked(tmp_path):
    """Missing folders are made."""
    path = write_report(steady_run(6), tmp_path / "new" / "report.html")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_report_needs_no_other_file():
    """Nothing is fetched: no script, no link, no image but inline drawings."""
    html = render(steady_run(12))
    assert not {tag for tag, _ in tags_of(html)} & {"script", "link", "img", "iframe"}
    assert "@import" not in html
    assert not re.search(r"""(src|href)=["'](?!#)""", html)


def test_report_has_a_plot_for_everything_measured():
    """Throughput, latency, state and lag."""
    html = render(steady_run(12))
    assert [title for title in ("Throughput", "Latency per query", "State", "Lag") if f"<h2>{title}</h2>" in html] == [
        "Throughput",
        "Latency per query",
        "State",
        "Lag",
    ]
    assert html.count("<svg") == 4


def test_identifiers_in_drawings_are_unique():
    """Two drawings on one page do not use each other's parts."""
    identifiers = [attributes["id"] for _, attributes in tags_of(render(steady_run(12))) if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


def test_drawings_follow_the_theme():
    """Colours are the page's variables, in light and in dark."""
    html = render(steady_run(12))
    drawing = html[html.index("<svg") : html.rindex("</svg>")]
    assert re.findall(r"#[0-9a-f]{6}\b", drawing) == []
    assert "var(--first)" in drawing


def test_summary_table_has_the_queries_by_priority():
    """Query, priority, rows, p50 and p99."""
    html = render(steady_run(12))
    row = r"<tr><td>busy</td><td class=\"n\">5</td><td class=\"n\">120</td>\s*<td class=\"n\">600 ms</td><td class=\"n\">600 ms</td></tr>"
    assert re.search(row, html)
    assert html.index("<td>busy</td>") < html.index("<td>quiet</td>")


def test_warnings_are_listed_and_escaped():
    """A message may contain anything."""
    html = render([*steady_run(3), Warned(START_S, "file <x> & 'y' is torn")])
    assert "file &lt;x&gt; &amp; &#39;y&#39; is torn" in html


def test_caller_adds_tables():
    """Numbers of the caller's own stand in tables, never in plots."""
    html = render(steady_run(3), [Table("Checked", ["query", "rows"], [["busy", 30]], "against Polars")])
    assert "<h2>Checked</h2>" in html
    assert "against Polars" in html


def test_report_of_nothing_says_so():
    """A job that never committed an epoch still gets a page."""
    html = render([])
    tags_of(html)
    assert "no epoch was committed" in html


def test_report_of_a_failed_and_resumed_job_says_why_it_stopped():
    """The reason is on the page."""
    html = render(
        [started(), epoch(1), JobStopped(START_S + 2, 1, "disk full"), started(START_S + 9, resumed=1), epoch(2, START_S + 10)]
    )
    assert "resumed once" in html
    assert "stopped by: disk full" in html


def test_many_queries_are_all_in_the_table_and_the_most_valuable_in_the_plot():
    """A plot with a hundred panels would show nothing."""
    names = {f"q{number:02}": 1 + number % 10 for number in range(30)}
    events = [
        started(priorities=names),
        *(epoch(n, latency_s=dict.fromkeys(names, 0.5), query_rows=dict.fromkeys(names, 1)) for n in (1, 2, 3)),
    ]
    html = render(events)
    assert html.count("<td>q") == 30
    assert "6 queries of lower priority are only in the table" in html


def loads(*used: tuple[float, float]) -> list[object]:
    """Two nodes, measured once a second; the second of them is called by its user's name."""
    measured = [
        LoadMeasured(START_S + second, second, {}, {"0": NodeLoad(a, 1.0, {"counts": 2}), "1": NodeLoad(b, 0.5, {"counts": 1})})
        for second, (a, b) in enumerate(used, 1)
    ]
    return [NodeNamed(START_S, "1", "node-2"), *measured]


def test_report_draws_the_utilisation_of_each_node_and_when_partitions_moved():
    """A line per node under its name, a mark for a move; one node alone needs no picture."""
    events = [*steady_run(6), *loads((0.9, 0.1), (0.8, 0.1), (0.5, 0.25)), MoveEnded(START_S + 2.5, "", 3, 0.5, 0.01, 100)]
    html = render(events)
    assert "<h2>Utilisation per node</h2>" in html and "A dotted line is a move" in html
    assert "node 0" in html and "node-2" in html
    assert metrics.utilisation(events)["node-2"][-1].value == 0.5
    assert "Utilisation per node" not in render(steady_run(6))


def test_many_nodes_are_drawn_as_a_band():
    """Thirteen nodes: the mean, between the emptiest and the fullest."""
    nodes = {str(node): NodeLoad(node / 13, 1.0, {}) for node in range(13)}
    html = render([*steady_run(6), LoadMeasured(START_S + 1, 1, {}, nodes), LoadMeasured(START_S + 2, 2, {}, nodes)])
    assert "mean of 13 nodes" in html
