"""Plots as inline SVG whose colours are CSS variables, so that they follow the page's light or dark theme."""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from resurge.telemetry import metrics, recovery_metrics
from resurge.telemetry.events import Event, MoveEnded, NodeLost
from resurge.telemetry.metrics import Band, RunningTime, Series
from resurge.telemetry.wording import bytes_in_words, rows_in_words, seconds_in_words

WIDTH_IN = 9.2
HEIGHT_IN = 2.5
QUERIES_SHOWN = 24
NODES_SHOWN = 12
_DASHES: tuple[str | tuple[int, tuple[int, ...]], ...] = ("-", (0, (4, 2)), (0, (1, 1)), (0, (6, 2, 1, 2)))
EPOCHS_PER_BAND = 20

# Colours that matplotlib writes and the page replaces; any distinct values will do.
INK, FAINT, FIRST, SECOND, MARK = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {INK: "--ink", FAINT: "--faint", FIRST: "--first", SECOND: "--second", MARK: "--mark"}
_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


@dataclass(frozen=True)
class Plot:
    """A drawing with its words."""

    title: str
    caption: str
    svg: str


def all_plots(events: Sequence[Event]) -> list[Plot]:
    """Every plot for which telemetry has something to show."""
    time = RunningTime(events)
    drawn = [
        _recovery(events, time),
        _throughput(events, time),
        _latency(events, time),
        _utilisation(events, time),
        _state(events, time),
        _lag(events, time),
    ]
    return [plot for plot in drawn if plot is not None]


def _recovery(events: Sequence[Event], time: RunningTime) -> Plot | None:
    """One bar per query that went down, the most valuable on top, between the moments when nodes died and came."""
    lasting = recovery_metrics.outages(events)
    if not any(isinstance(event, NodeLost) for event in events) or not lasting:
        return None
    priorities = metrics.priorities(events)
    queries = sorted({outage.query for outage in lasting}, key=lambda query: (priorities.get(query, 1), query))[-QUERIES_SHOWN:]
    end_s = max(event.at_s for event in events)
    with _figure(1, 1, 0.24 * len(queries) + 1.1) as (figure, (axes,)):
        for outage in lasting:
            if outage.query in queries:
                span = [time.at(outage.from_s), time.at(outage.to_s if outage.to_s is not None else end_s)]
                axes.barh(queries.index(outage.query), span[1] - span[0], left=span[0], height=0.62, color=SECOND)
        for at_s, change, _ in recovery_metrics.node_changes(events):
            if at_s >= (recovery_metrics.failure_s(events) or 0):
                axes.axvline(
                    time.at(at_s),
                    color=MARK if change < 0 else FIRST,
                    linewidth=1.2,
                    linestyle="-" if change < 0 else (0, (2, 2)),
                )
        axes.set_yticks(range(len(queries)), [f"{query} (priority {priorities.get(query, 1)})" for query in queries])
        axes.grid(axis="y", visible=False)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds_in_words(value)))
        return Plot(
            "Recovery",
            "When each query was without output, the most valuable on top. A solid line is a node that died, a dashed one a node "
            "that joined.",
            _svg(figure, "recovery"),
        )


def _throughput(events: Sequence[Event], time: RunningTime) -> Plot | None:
    went_by, worked = metrics.throughput(events), metrics.pace(events)
    if not went_by:
        return None
    with _figure(1, 1, HEIGHT_IN) as (figure, (axes,)):
        if worked:
            axes.plot(*_line(worked, time), color=SECOND, linewidth=1.0, linestyle=(0, (3, 2)), label="while an epoch ran")
        axes.plot(*_line(went_by, time), color=FIRST, marker=_marker(went_by), markersize=3.5, label="as time went by")
        _finish(axes, events, time, rows_in_words)
        _legend(axes)
        return Plot(
            "Throughput",
            "Input rows per second, epoch by epoch. The dashed line leaves out the waits between epochs: it is what the job can take.",
            _svg(figure, "throughput"),
        )


def _latency(events: Sequence[Event], time: RunningTime) -> Plot | None:
    series = metrics.latency(events, caught_up=True)
    queries = [summary for summary in metrics.summaries(events) if series.get(summary.query)]
    if not queries:
        return None
    shown = queries[:QUERIES_SHOWN]
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    with _figure(rows, columns, HEIGHT_IN if rows == 1 else 1.55 * rows + 0.3) as (figure, grid):
        for axes, summary in zip(grid, shown, strict=False):
            _draw_band(axes, metrics.rolling(series[summary.query], EPOCHS_PER_BAND), time)
            axes.set_title(f"{summary.query} (priority {summary.priority})")
        for axes in grid:
            _finish(axes, events, time, seconds_in_words, few=columns > 1)
        for axes in grid[len(shown) :]:
            axes.set_visible(False)
        left_out = (
            f" {len(queries) - len(shown)} queries of lower priority are only in the table." if queries[QUERIES_SHOWN:] else ""
        )
        return Plot(
            "Latency per query",
            f"From arrival to committed output: median (line) to 99th percentile (band) of the last {EPOCHS_PER_BAND} epochs, "
            f"on one scale, the most valuable query first.{left_out}",
            _svg(figure, "latency"),
        )


def _utilisation(events: Sequence[Event], time: RunningTime) -> Plot | None:
    """One line per node; where there are many, from the emptiest to the fullest and their mean."""
    series = metrics.utilisation(events)
    if len(series) < 2:
        return None
    with _figure(1, 1, HEIGHT_IN + 0.3) as (figure, (axes,)):
        if len(series) <= NODES_SHOWN:
            for index, (name, points) in enumerate(series.items()):
                axes.plot(*_line(points, time), color=(FIRST, SECOND, INK)[index % 3], linestyle=_DASHES[index // 3], label=name)
        else:
            low, mean, high = metrics.spread_over_time(series)
            at_s = [time.at(point.at_s) for point in mean]
            axes.fill_between(at_s, [p.value for p in low], [p.value for p in high], color=FIRST, alpha=0.2, linewidth=0)
            axes.plot(at_s, [point.value for point in mean], color=FIRST, label=f"mean of {len(series)} nodes")
        moves = [time.at(event.at_s) for event in events if isinstance(event, MoveEnded) and event.moved]
        for at in moves:
            axes.axvline(at, color=FAINT, linewidth=1.0, linestyle=(0, (1, 1)))
        _finish(axes, events, time, lambda value: f"{value:.0%}")
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=7, borderaxespad=0.2, handlelength=1.6, columnspacing=1.2)
        told = " A dotted line is a move of partitions." if moves else ""
        return Plot(
            "Utilisation per node",
            f"What the partitions on each node use of what the node may spend. A line ends when its node has gone.{told}",
            _svg(figure, "utilisation"),
        )


def _state(events: Sequence[Event], time: RunningTime) -> Plot | None:
    points = metrics.state_bytes(events)
    if not any(point.value for point in points):
        return None
    with _figure(1, 1, HEIGHT_IN) as (figure, (axes,)):
        at_s, values = _line(points, time)
        axes.fill_between(at_s, values, color=FIRST, alpha=0.18, linewidth=0)
        axes.plot(at_s, values, color=FIRST, marker=_marker(points), markersize=3.5)
        _finish(axes, events, time, bytes_in_words)
        return Plot("State", "Keyed state of all partitions after each epoch.", _svg(figure, "state"))


def _lag(events: Sequence[Event], time: RunningTime) -> Plot | None:
    points = metrics.lag(events)
    if not points:
        return None
    with _figure(1, 1, HEIGHT_IN) as (figure, (axes,)):
        axes.plot(*_line(points, time), color=FIRST, marker=_marker(points), markersize=3.5)
        _finish(axes, events, time, rows_in_words)
        return Plot("Lag", "Rows that had arrived and still waited when each epoch was committed.", _svg(figure, "lag"))


@contextmanager
def _figure(rows: int, columns: int, height_in: float) -> Iterator[tuple[Figure, list[Axes]]]:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        yield figure, list(grid.flat)


def _draw_band(axes: Axes, bands: Sequence[Band], time: RunningTime) -> None:
    at_s = [time.at(band.at_s) for band in bands]
    low, high = [band.p50 for band in bands], [band.p99 for band in bands]
    axes.fill_between(at_s, low, high, color=FIRST, alpha=0.25, linewidth=0)
    axes.plot(at_s, low, color=FIRST)


def _finish(axes: Axes, events: Sequence[Event], time: RunningTime, words: Callable[[float], str], *, few: bool = False) -> None:
    """Checkpoints and restarts marked, axes from zero, ticks in words."""
    axes.set_ylim(bottom=0)
    checkpoints = [time.at(point.at_s) for point in metrics.checkpoint_times(events)]
    if checkpoints:
        bottom = axes.get_xaxis_transform()
        axes.plot(
            checkpoints,
            [0.0] * len(checkpoints),
            "^",
            color=MARK,
            markersize=5,
            transform=bottom,
            clip_on=False,
            label="checkpoint",
        )
    for restart_s in time.restarts_s:
        axes.axvline(restart_s, color=MARK, linewidth=0.9, linestyle=(0, (1, 2)))
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(4 if few else 9, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: words(value) if value else "0"))


def _legend(axes: Axes) -> None:
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, borderaxespad=0.2)


def _line(points: Series, time: RunningTime) -> tuple[list[float], list[float]]:
    return [time.at(point.at_s) for point in points], [point.value for point in points]


def _marker(points: Series) -> str | None:
    """Few points are marked, many would only thicken the line."""
    return "o" if len(points) <= 60 else None


def _svg(figure: Figure, salt: str) -> str:
    """The figure as an SVG element; `salt` keeps its identifiers apart from other plots' on the page."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": salt}):
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg
