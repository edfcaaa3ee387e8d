"""What a run shows while it runs: a table that stays in place on a terminal, else one plain line per epoch."""

import os
import time
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from resurge.cli.placement import NODES_SHOWN, move_in_words, node_table
from resurge.telemetry import metrics
from resurge.telemetry.cluster_view import ClusterView, after
from resurge.telemetry.events import (
    CatchUpFinished,
    CheckpointFinished,
    ClusterScaled,
    EpochFinished,
    Event,
    JobStarted,
    MoveEnded,
    NodeJoined,
    NodeLost,
    NodeResponded,
    NodeSuspected,
    PartitionsGivenUp,
    QueriesChanged,
    WaitingForNodes,
    Warned,
)
from resurge.telemetry.metrics import Snapshot, Spread
from resurge.telemetry.wording import NOT_KNOWN, bytes_in_words, given_up_in_words, rows_in_words, seconds_in_words

RECENT_EVENTS = 200
QUERIES_SHOWN = 20
PARTITIONS_SHOWN = 8


class RecentEvents:
    """The newest events, what a view needs of the older ones, and totals; its size does not grow with the run."""

    def __init__(self) -> None:
        self._started: Event | None = None
        self._checkpoint: Event | None = None
        self._recent: deque[Event] = deque(maxlen=RECENT_EVENTS)
        self._rows = 0
        self._query_rows: dict[str, int] = {}
        self.cluster = ClusterView()

    def add(self, event: Event) -> None:
        """Take one more event into account."""
        self.cluster = after(self.cluster, event)
        if isinstance(event, JobStarted):
            self._started = event
        elif isinstance(event, CheckpointFinished):
            self._checkpoint = event
        else:
            self._recent.append(event)
        if isinstance(event, EpochFinished) and not event.replayed:
            self._rows += event.rows_read
            for query, rows in event.query_rows.items():
                self._query_rows[query] = self._query_rows.get(query, 0) + rows
        elif isinstance(event, CatchUpFinished):
            for query, epochs in event.published.items():
                self._query_rows[query] = self._query_rows.get(query, 0) + sum(epochs.values())

    def snapshot(self, now_s: float) -> Snapshot:
        """Where the job stands: latencies of the recent epochs, rows of all."""
        events = [event for event in (self._started, self._checkpoint, *self._recent) if event is not None]
        recent = metrics.snapshot(events, now_s)
        queries = tuple(replace(query, rows=self._query_rows.get(query.query, 0)) for query in recent.queries)
        return replace(recent, rows=self._rows, queries=queries)


class View(Protocol):
    """What a run tells its view."""

    def __enter__(self) -> "View": ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def on_event(self, event: Event) -> None:
        """Something happened."""

    def on_stop_asked(self) -> None:
        """The user asked to stop; called from a signal handler."""


def open_view(console: Console) -> View:
    """The view that suits where output goes."""
    return TerminalView(console) if console.is_terminal else PlainView(console)


class PlainView:
    """One line per epoch, for files, pipes and logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._events = RecentEvents()

    def __enter__(self) -> "PlainView":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def on_event(self, event: Event) -> None:
        """Print a line for what is worth one."""
        self._events.add(event)
        if isinstance(event, CheckpointFinished):
            return
        line = plain_line(event, self._events.snapshot(time.time()), self._events.cluster)
        if line is not None:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def on_stop_asked(self) -> None:
        """Say that the current epoch is finished first."""
        # Not the console: a signal may arrive while it is printing.
        os.write(2, b"stopping after this epoch; again to stop at once\n")


class TerminalView:
    """A table that is redrawn in place; what the job prints appears above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._events = RecentEvents()
        self._is_stopping = False
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4)

    def __enter__(self) -> "TerminalView":
        self._live.start(refresh=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def on_event(self, event: Event) -> None:
        """Take note; the next redraw shows it."""
        self._events.add(event)
        line = incident(event, self._events.cluster)
        if line is not None:
            self._console.print(line, style="yellow", highlight=False, markup=False)

    def on_stop_asked(self) -> None:
        """Say that the current epoch is finished first."""
        self._is_stopping = True

    def _render(self) -> Group:
        return drawn(self._events.snapshot(time.time()), self._is_stopping, self._events.cluster)


def plain_line(event: Event, now: Snapshot, cluster: ClusterView | None = None) -> str | None:
    """What a log says of an event, if anything."""
    if isinstance(event, JobStarted):
        return f"{event.job} on {event.master}{_resumed(event)}, generation {event.generation}"
    if isinstance(event, CatchUpFinished):
        return f"{_epochs(event)} run again in {seconds_in_words(event.took_s)} to bring {event.partitions} partitions up to date"
    if not isinstance(event, EpochFinished):
        return incident(event, cluster)
    parts = [
        f"epoch {event.epoch}",
        f"{rows_in_words(event.rows_read)} rows in {seconds_in_words(event.took_s)}",
        f"{rows_in_words(now.rows_per_s)} rows/s",
        f"latency p50 {_p50(now.latency_s)} p99 {_p99(now.latency_s)}",
        f"lag {lag_in_words(now)}",
        f"state {bytes_in_words(now.state_bytes)}",
        f"checkpoint {checkpoint_in_words(now)}",
    ]
    return " | ".join(parts + _losses(now) + _troubles(now, cluster))


def incident(event: Event, cluster: ClusterView | None = None) -> str | None:
    """Something that went wrong, or was put right, in one line; `cluster` has the names of nodes."""
    known = cluster or ClusterView()
    if isinstance(event, Warned):
        return f"warning: {event.message}"
    if isinstance(event, PartitionsGivenUp):
        return f"given up: {given_up_in_words(event)}"
    if isinstance(event, NodeLost):
        return f"{known.name(event.node)} lost, with {event.partitions} partitions"
    if isinstance(event, NodeSuspected):
        wait = f"no answer for {seconds_in_words(event.unanswered_s)}, declared dead after {seconds_in_words(event.timeout_s)}"
        return f"waiting for {known.name(event.node)}: {wait}"
    if isinstance(event, NodeResponded):
        return f"{known.name(event.node)} answers again"
    if isinstance(event, NodeJoined):
        return f"{known.name(event.node)} joined"
    if isinstance(event, MoveEnded):
        return move_in_words(event)
    if isinstance(event, ClusterScaled):
        return f"{event.wanted} nodes are wanted instead of {event.nodes}: {event.why}"
    if isinstance(event, WaitingForNodes):
        return f"no node is left after epoch {event.epoch}: waiting for one"
    if isinstance(event, QueriesChanged) and event.down:
        return f"down: {', '.join(event.down)}"
    # Every run begins with all queries coming back, which is no news.
    if isinstance(event, QueriesChanged) and event.epoch:
        return f"back: {', '.join(event.back)}"
    return None


def drawn(now: Snapshot, is_stopping: bool = False, cluster: ClusterView | None = None) -> Group:
    """The table of a snapshot, and the queries' own when they are few enough to read."""
    figures = Table.grid(padding=(0, 3))
    cells = [
        ("epoch", f"{now.epoch:,}"),
        ("rows/s", rows_in_words(now.rows_per_s)),
        ("latency p50", _p50(now.latency_s)),
        ("latency p99", _p99(now.latency_s)),
        ("lag", lag_in_words(now)),
        ("state", bytes_in_words(now.state_bytes)),
        ("checkpoint", checkpoint_in_words(now)),
    ]
    for _ in cells:
        figures.add_column()
    figures.add_row(*(Text(name, style="dim") for name, _ in cells))
    figures.add_row(*(Text(value, style="bold") for _, value in cells))
    shown: list[Any] = [Text(now.job or "starting ...", style="bold"), figures]
    if cluster is not None and cluster.nodes:
        shown.append(Text(nodes_in_words(cluster), style="dim"))
    if cluster is not None:
        shown += [Text(line, style="dim") for line in partition_lags(cluster)]
    losses = _losses(now) + _troubles(now, cluster)
    if losses:
        shown.append(Text(" | ".join(losses), style="yellow"))
    if now.queries:
        shown += [Text(), query_table(now, cluster=cluster)]
    if cluster is not None and len(cluster.loads) > 1:
        shown += [Text(), node_table(cluster)]
    hint = "stopping after this epoch; Ctrl-C again to stop at once" if is_stopping else "Ctrl-C stops after the current epoch"
    return Group(*shown, Text(hint, style="yellow" if is_stopping else "dim"))


def query_table(now: Snapshot, shown: int = QUERIES_SHOWN, cluster: ClusterView | None = None) -> Table:
    """Query, whether it is up, priority, rows and latency, the most valuable first."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("query")
    if cluster is not None:
        table.add_column("state")
    for name in ("priority", "rows", "latency p50", "latency p99"):
        table.add_column(name, justify="right")
    for query in now.queries[:shown]:
        latency = query.latency_s
        state = [Text(cluster.of_query(query.query))] if cluster is not None else []
        table.add_row(Text(query.query), *state, str(query.priority), f"{query.rows:,}", _p50(latency), _p99(latency))
    if len(now.queries) > shown:
        table.add_row(Text(f"and {len(now.queries) - shown} more", style="dim"))
    return table


def nodes_in_words(cluster: ClusterView) -> str:
    """How many nodes there are, and which."""
    names = sorted(cluster.names.get(node, node) for node in cluster.nodes)
    listed = ", ".join(names[:NODES_SHOWN]) + (f" and {len(names) - NODES_SHOWN} more" if len(names) > NODES_SHOWN else "")
    return f"{len(names)} node{'s' if len(names) > 1 else ''}: {listed}"


def partition_lags(cluster: ClusterView) -> list[str]:
    """For each source that knows its partitions: how many rows wait in which, those with the most first."""
    lines = []
    for source, partitions in cluster.lag.items():
        most = sorted(partitions.items(), key=lambda item: (-item[1], len(item[0]), item[0]))
        listed = ", ".join(f"{name}: {rows_in_words(rows)}" for name, rows in most[:PARTITIONS_SHOWN])
        more = f" and {len(most) - PARTITIONS_SHOWN} more" if len(most) > PARTITIONS_SHOWN else ""
        lines.append(f"lag of {source} by partition: {listed}{more}")
    return lines


def starting(console: Console, master: str) -> AbstractContextManager[Any]:
    """Something to look at while Spark starts."""
    return console.status(f"starting Spark on {master} ...") if console.is_terminal else nullcontext()


def lag_in_words(now: Snapshot) -> str:
    """Rows waiting, and the bound that back-pressure sets."""
    bound = f" (at most {rows_in_words(now.row_limit)} per epoch)" if now.row_limit is not None and now.lag_rows else ""
    return f"{rows_in_words(now.lag_rows)}{bound}"


def checkpoint_in_words(now: Snapshot) -> str:
    """Which epoch the last checkpoint is of, how old it is, and what is kept for partitions that it lacks."""
    if now.checkpoint_epoch is None:
        return NOT_KNOWN
    if now.checkpoint_age_s is None:
        return f"{now.checkpoint_epoch:,} (earlier run)"
    absent = ""
    if now.checkpoint_absent and now.kept_since is not None:
        absent = f"; without {now.checkpoint_absent:,} partitions, input since epoch {now.kept_since:,} is kept for them"
    return f"{now.checkpoint_epoch:,} ({seconds_in_words(now.checkpoint_age_s)} ago{absent})"


def _resumed(started: JobStarted) -> str:
    if not started.resumed_epoch:
        return ""
    return f", resumed after epoch {started.resumed_epoch} from the checkpoint of epoch {started.checkpoint_epoch}"


def _epochs(step: CatchUpFinished) -> str:
    return f"epoch {step.first}" if step.first == step.last else f"epochs {step.first} to {step.last}"


def _losses(now: Snapshot) -> list[str]:
    counted = [("late", now.late_rows), ("malformed", now.bad_rows)]
    return [f"{rows_in_words(count)} {name}" for name, count in counted if count]


def _troubles(now: Snapshot, cluster: ClusterView | None) -> list[str]:
    """Queries that are down and nodes that are waited for."""
    if cluster is None:
        return []
    found = [query.query for query in now.queries if cluster.of_query(query.query).startswith("down")]
    queries = [f"{len(found)} of {len(now.queries)} queries down"] if found else []
    return queries + [f"waiting for {cluster.name(node)}" for node in sorted(cluster.suspected)]


def _p50(latency: Spread | None) -> str:
    return seconds_in_words(latency.p50 if latency else None)


def _p99(latency: Spread | None) -> str:
    return seconds_in_words(latency.p99 if latency else None)
