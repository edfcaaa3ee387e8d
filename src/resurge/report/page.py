"""The report: one HTML file that needs nothing else, every number of it computed from telemetry."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2

from resurge.report.plots import all_plots
from resurge.telemetry import metrics
from resurge.telemetry.events import Event, JobStarted, JobStopped
from resurge.telemetry.wording import NOT_KNOWN, bytes_in_words, rows_in_words, seconds_in_words


@dataclass(frozen=True)
class Table:
    """A table that the caller adds to the report."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str = ""


def write_report(events: Iterable[Event], path: Path, tables: Sequence[Table] = ()) -> Path:
    """Write the report of a run, or of several runs of the same job, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(list(events), tables), encoding="utf-8")
    return path


def render(events: Sequence[Event], tables: Sequence[Table] = ()) -> str:
    """The report as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("resurge.report", "."), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"rows": rows_in_words, "seconds": seconds_in_words, "moment": _moment, "number": _is_number}
    return environment.get_template("page.html").render(
        job=metrics.snapshot(events, 0.0).job or "no job",
        about=_about(events),
        figures=_figures(events),
        queries=metrics.summaries(events),
        plots=all_plots(events),
        tables=tables,
        warnings=metrics.warnings(events),
        events=len(events),
    )


def _about(events: Sequence[Event]) -> list[str]:
    """What ran, where and when."""
    starts = [event for event in events if isinstance(event, JobStarted)]
    if not starts:
        return []
    last = starts[-1]
    words = [
        f"on {last.master}",
        f"{len(last.nodes)} {'node' if len(last.nodes) == 1 else 'nodes'}",
        f"{last.key_groups} key groups",
        f"started {_moment(starts[0].at_s)}",
    ]
    if len(starts) > 1:
        words.append(f"resumed {'once' if len(starts) == 2 else f'{len(starts) - 1} times'}")
    failures = [event.reason for event in events if isinstance(event, JobStopped) and event.reason]
    return words + [f"stopped by: {reason}" for reason in failures[-1:]]


def _figures(events: Sequence[Event]) -> list[tuple[str, str]]:
    """The few numbers to see first."""
    now = metrics.snapshot(events, 0.0)
    spread = now.latency_s
    figures = [
        ("epochs", f"{len({epoch.epoch for epoch in metrics.finished_epochs(events, replayed=True)}):,}"),
        ("input rows", rows_in_words(now.rows)),
        ("rows/s, steady", rows_in_words(metrics.steady_rows_per_s(events))),
        ("latency p50", seconds_in_words(spread.p50 if spread else None)),
        ("latency p99", seconds_in_words(spread.p99 if spread else None)),
        ("state", bytes_in_words(now.state_bytes)),
        ("checkpoints", f"{len(metrics.checkpoint_times(events)):,}"),
    ]
    extra = [("late rows", now.late_rows), ("malformed rows", now.bad_rows)]
    return figures + [(name, rows_in_words(count)) for name, count in extra if count]


def _moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at_s else NOT_KNOWN


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
