"""The correlated-failure study as plots, a table and a summary; every number is computed from telemetry."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations, cycle, pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from resurge.telemetry import metrics, recovery_metrics
from resurge.telemetry.events import EpochFinished, Event

COLOURS = {
    "incremental": "#0b7a75",
    "blocking": "#b3541e",
    "eager": "#7b2d8b",
    "source-replay": "#555b6e",
    "best-case": "#89b0ae",
}
SHADES = ("#0b7a75", "#b3541e", "#7b2d8b", "#555b6e", "#89b0ae")
LEAST_EPOCHS = 8
LONGEST_LINE_S = 15.0
FALLS_BEHIND = 0.05
"""An epoch's latency that grows by more than this, in seconds per second, will sooner or later be as long as anyone likes."""
Runs = Mapping[str, Sequence[Event]]


def write_figure(figure: str, runs: Runs, out: Path, heading: str, longest_s: float | None = None) -> dict[str, Any]:
    """Write one figure's plots and table; for the strategies also summary.json, summary.csv and summary.md. Returns the table.

    The table is of what happened until so long after the failure, so that runs which were watched for longer can be compared.
    """
    out.mkdir(parents=True, exist_ok=True)
    found = {name: summarise(events, longest_s) for name, events in runs.items()}
    if figure == "strategies":
        _draw(runs, out / "latency.png", _average_relative_latency, "average relative latency", log=True)
        _draw(runs, out / "available.png", recovery_metrics.available_queries, "available queries", log=False)
        (out / "summary.json").write_text(json.dumps(found, indent=2) + "\n")
        (out / "summary.csv").write_text(_csv(found))
        (out / "summary.md").write_text(_markdown(found, heading))
        return found
    if figure in ("places", "kills"):
        _draw_failed_and_normal(runs, out / f"{figure}.png")
    else:
        _draw(runs, out / f"{figure}.png", _average_relative_latency, "average relative latency", log=True)
    (out / f"{figure}.json").write_text(json.dumps(found, indent=2) + "\n")
    return found


def kept_figures(tables: Mapping[str, Mapping[str, Any]], strategies: Runs) -> dict[str, Any]:
    """What a result file keeps: the tables, the outage of `incremental` as a share of others', and the lines of the picture."""
    found: dict[str, Any] = {"results": tables.get("strategies", {})}
    found |= {"figures": others} if (others := {name: table for name, table in tables.items() if name != "strategies"}) else {}
    areas = {name: row["outage_area"] for name, row in found["results"].items()}
    if areas.get("incremental") is not None:
        found["outage_share"] = {name: round(areas["incremental"] / area, 3) for name, area in areas.items() if area}
    found["available"] = {name: steps(recovery_metrics.available_queries(events)) for name, events in strategies.items()}
    return found


def steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """A line of steps without the points at which it goes on as it was; the last point stays.

    >>> steps([(0.0, 2.0), (1.0, 2.0), (2.0, 5.0), (3.0, 5.0), (4.0, 5.0)])
    [(0.0, 2.0), (2.0, 5.0), (4.0, 5.0)]
    """
    return [point for index, point in enumerate(points) if index in (0, len(points) - 1) or point[1] != points[index - 1][1]]


def draw_available(available: Mapping[str, Sequence[Sequence[float]]], path: Path, description: str = "") -> None:
    """The picture of available queries, from a result file."""
    lines = [(name, COLOURS.get(name, "black"), "-", points) for name, points in available.items()]
    _plot(lines, path, "available queries", log=False, description=description)


def summarise(events: Sequence[Event], longest_s: float | None = None) -> dict[str, Any]:
    """The figures of one strategy."""
    found = asdict(recovery_metrics.figures(events, longest_s))
    found["healthy_latency_ratio"] = recovery_metrics.healthy_ratio(events)
    found["join_latency_ratio"] = recovery_metrics.join_ratio(events)
    found["epochs_ratio"] = recovery_metrics.epochs_ratio(events)
    growth = latency_growth(events)
    found["latency_growth"] = growth
    found["falls_behind"] = growth is not None and growth > FALLS_BEHIND
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in found.items()}


def latency_growth(events: Sequence[Event]) -> float | None:
    """How fast latency grew in the second half after the failure, in seconds per second: the median slope between its epochs."""
    began = recovery_metrics.failure_s(events)
    after = [event for event in events if isinstance(event, EpochFinished) and began is not None and event.at_s > began]
    if len(after) < LEAST_EPOCHS:
        return None
    half = [(epoch.at_s, epoch.at_s - epoch.arrival_s) for epoch in after[len(after) // 2 :]]
    slopes = metrics.spread((later - sooner) / (until - since) for (since, sooner), (until, later) in combinations(half, 2))
    return slopes.p50 if slopes is not None else None


def _average_relative_latency(events: Sequence[Event], queries: Collection[str] | None = None) -> list[tuple[float, float]]:
    """The mean over queries (all, unless some are named) of their newest relative latency, each time one shows something."""
    began = recovery_metrics.failure_s(events) or 0.0
    series = recovery_metrics.relative_latencies(events)
    points = sorted(
        (point.at_s, query, point.value)
        for query, line in series.items()
        if queries is None or query in queries
        for point in line
    )
    newest: dict[str, float] = {}
    found = []
    for at_s, query, value in points:
        newest[query] = value
        if at_s > began - 20:
            found.append((at_s - began, sum(newest.values()) / len(newest)))
    return found


def _draw_failed_and_normal(runs: Runs, path: Path) -> None:
    """Queries that went down as a solid line, those that did not as a dotted one."""
    lines = []
    for index, (name, events) in enumerate(runs.items()):
        failed = {outage.query for outage in recovery_metrics.outages(events)}
        normal = set(metrics.priorities(events)) - failed
        colour = SHADES[index % len(SHADES)]
        lines.append((f"{name}, failed queries", colour, "-", _with_gaps(_average_relative_latency(events, failed))))
        if normal:
            lines.append((f"{name}, normal queries", colour, ":", _with_gaps(_average_relative_latency(events, normal))))
    _plot(lines, path, "average relative latency", log=True)


def _draw(runs: Runs, path: Path, series: Callable[[Sequence[Event]], list[Any]], label: str, *, log: bool) -> None:
    shades = cycle(SHADES)
    lines = [(name, COLOURS.get(name) or next(shades), "-", _with_gaps(series(events))) for name, events in runs.items()]
    _plot(lines, path, label, log=log)


def _plot(
    lines: Sequence[tuple[str, str, str, Sequence[Any]]], path: Path, label: str, *, log: bool, description: str = ""
) -> None:
    with mpl.rc_context(
        {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3}
    ):
        figure = Figure(figsize=(8, 4), layout="constrained")
        FigureCanvasAgg(figure)
        axes: Axes = figure.subplots()
        for name, colour, style, points in lines:
            if points:
                axes.plot(
                    *zip(*points, strict=True), label=name, color=colour, linestyle=style, linewidth=1.8, drawstyle="steps-post"
                )
        axes.axvline(0, color="#c1121f", linewidth=1, linestyle="--")
        axes.set_xlabel("seconds after the failure")
        axes.set_ylabel(label)
        if log:
            axes.set_yscale("log")
            axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("{x:g}")
        axes.legend(frameon=False, fontsize=8)
        figure.savefig(path, dpi=130, metadata={"Description": description})


def _with_gaps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points, with a gap wherever nothing was shown for so long that a line would mislead."""
    found = list(points[:1])
    for before, after in pairwise(points):
        if after[0] - before[0] > LONGEST_LINE_S:
            found.append((before[0] + LONGEST_LINE_S, math.nan))
        found.append(after)
    return found


def _csv(summary: Mapping[str, Mapping[str, Any]]) -> str:
    columns = list(next(iter(summary.values()), {}))
    lines = [",".join(["strategy", *columns])]
    lines += [
        ",".join([strategy, *("" if row[c] is None else str(row[c]) for c in columns)]) for strategy, row in summary.items()
    ]
    return "\n".join(lines) + "\n"


def _markdown(summary: Mapping[str, Mapping[str, Any]], heading: str) -> str:
    lines = [
        f"# {heading}",
        "",
        "| strategy | first query back | all back | all at normal latency | outage area | healthy queries' latency | falls behind |",
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for strategy, row in summary.items():
        ratio = row["healthy_latency_ratio"]
        cells = [
            _seconds(row["first_back_s"]),
            _seconds(row["all_back_s"]),
            _seconds(row["all_available_s"]),
            f"{row['outage_area']:.0f}",
            "none was left" if ratio is None else f"{ratio:.2f} times normal",
            "yes" if row["falls_behind"] else "no",
        ]
        lines.append(f"| {strategy} | {' | '.join(cells)} |")
    lines += [
        "",
        *findings(summary),
        "",
        "![average relative latency](latency.png)",
        "",
        "![available queries](available.png)",
        "",
    ]
    return "\n".join(lines)


def findings(summary: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What the comparison shows, in words."""
    ours = summary.get("incremental")
    if ours is None:
        return []
    found = []
    for other in ("blocking", "eager", "source-replay"):
        if other not in summary or not summary[other]["outage_area"]:
            continue
        theirs = summary[other]
        area = ours["outage_area"] / theirs["outage_area"]
        text = f"- against `{other}`: outage area {area:.0%} of its"
        if ours["first_back_s"] and theirs["first_back_s"]:
            text += f", first query back after {ours['first_back_s'] / theirs['first_back_s']:.0%} of its time"
        found.append(text + ".")
    return found


def _seconds(value: float | None) -> str:
    return "not within the run" if value is None else f"{value:.1f} s"
