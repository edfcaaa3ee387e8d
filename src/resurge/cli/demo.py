"""resurge demo: the 15 queries on a cluster whose nodes are killed, or without one."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from resurge.cli.live_view import incident, plain_line
from resurge.model.names import query_of
from resurge.telemetry import metrics
from resurge.telemetry.cluster_view import ClusterView, after
from resurge.telemetry.events import (
    CatchUpFinished,
    EpochFinished,
    Event,
    JobStarted,
    NodeJoined,
    NodeLost,
    QueriesChanged,
    RecoveryPlanned,
)
from resurge.telemetry.wording import seconds_in_words


class DemoView:
    """Nodes and queries, by the events of a job."""

    def __init__(self) -> None:
        self.began_s = time.time()
        self.nodes: dict[str, str] = {}
        self.priorities: dict[str, int] = {}
        self.state: dict[str, str] = {}
        self.latency_s: dict[str, float] = {}
        self.epoch = 0
        self.lines: list[str] = []
        self.cluster = ClusterView()
        self.events: list[Event] = []

    def take(self, event: Event) -> None:
        """Keep what an event changes."""
        self.events.append(event)
        if isinstance(event, JobStarted):
            self.nodes = dict.fromkeys(event.nodes, "up")
            self.priorities = event.priorities
            self.state = dict.fromkeys(event.priorities, "starting")
        elif isinstance(event, NodeLost):
            self.nodes[event.node] = "dead"
        elif isinstance(event, NodeJoined):
            self.nodes[event.node] = "up"
        elif isinstance(event, QueriesChanged):
            self.state |= dict.fromkeys(map(query_of, event.down), "down") | dict.fromkeys(map(query_of, event.back), "live")
        elif isinstance(event, RecoveryPlanned):
            returning = {query_of(name) for name in event.queries}
            self.state |= {query: "coming back" for query in returning if self.state.get(query) == "down"}
        elif isinstance(event, EpochFinished):
            self.epoch = event.epoch
            self.latency_s |= event.latency_s
        elif isinstance(event, CatchUpFinished):
            self.latency_s |= {query: values[-1] for query, values in event.latencies_s.items()}
        self.cluster = after(self.cluster, event)
        line = incident(event, self.cluster)
        if line is not None:
            self.lines = [*self.lines[-5:], f"{event.at_s - self.began_s:5.0f} s  {line}"]

    def draw(self) -> Group:
        """The screen."""
        styles = {"live": "green", "down": "bold red", "coming back": "yellow", "starting": "dim"}
        table = Table(title=f"epoch {self.epoch}", expand=False)
        for column in ("query", "priority", "state", "latency"):
            table.add_column(column, justify="right" if column in ("priority", "latency") else "left")
        for query in sorted(self.priorities, key=lambda name: (-self.priorities[name], name)):
            latency = self.latency_s.get(query)
            state = self.state.get(query, "starting")
            shown = seconds_in_words(latency) if latency is not None and state == "live" else "-"
            table.add_row(query, str(self.priorities[query]), Text(state, style=styles[state]), shown)
        nodes = Text("nodes  ")
        for node, health in sorted(self.nodes.items(), key=lambda item: int(item[0]) if item[0].isdigit() else 0):
            nodes.append(f" {node} {health} ", style="black on green" if health == "up" else "white on red")
            nodes.append(" ")
        return Group(nodes, table, *(Text(line, style="dim") for line in self.lines))


def demo(
    epochs: Annotated[int, typer.Option(min=20, help="Epochs to run.")] = 36,
    local: Annotated[bool, typer.Option("--local", help="On local[*], without a cluster and without failures.")] = False,
    report: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("out/demo.html"),
) -> None:
    """15 queries on a cluster of four nodes, two of which are killed; the queries come back, and every row is checked."""
    from resurge.experiments.demo import demonstrate, demonstrate_locally
    from resurge.report import write_report
    from resurge.telemetry.log import read_events

    run = demonstrate_locally if local else demonstrate
    console = Console()
    view = DemoView()
    log = report.with_suffix(".jsonl")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    if console.is_terminal:
        with Live(console=console, get_renderable=view.draw, refresh_per_second=4):
            outcome = run(epochs, log, view.take, lambda text: console.print(text, style="bold"))
    else:

        def progress(event: Event) -> None:
            view.take(event)
            line = plain_line(event, metrics.snapshot(view.events[-60:], time.time()), view.cluster)
            if line is not None:
                console.print(line, highlight=False, markup=False, soft_wrap=True)

        outcome = run(epochs, log, progress, console.print)
    events = list(read_events(log))
    _print_summary(console, events)
    console.print(f"report: {write_report(events, report).resolve()}", soft_wrap=True)
    if not outcome.passed:
        console.print(
            f"FAILED: {outcome.lost} rows lost, {outcome.duplicated} repeated, wrong counts: {outcome.wrong or 'none'}",
            style="red",
        )
        sys.exit(1)
    console.print(
        "passed: every count equals the independent computation, and every row that of an undisturbed run; "
        "nothing lost, nothing repeated",
        style="green",
        soft_wrap=True,
    )


def _print_summary(console: Console, events: list[Event]) -> None:
    table = Table()
    for column in ("query", "priority", "rows", "latency p50", "latency p99"):
        table.add_column(column, justify="left" if column == "query" else "right")
    for summary in metrics.summaries(events):
        spread = summary.latency_s
        shown = (seconds_in_words(spread.p50), seconds_in_words(spread.p99)) if spread else ("-", "-")
        table.add_row(summary.query, str(summary.priority), f"{summary.rows:,}", *shown)
    console.print(table)
