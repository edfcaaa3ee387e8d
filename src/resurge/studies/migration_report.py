"""The study of moving state on paper: a table of moves, figures 5 and 6, and whether what was to be reached was reached."""

import csv
import statistics
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from resurge.model.requests import DIRECT, WAYS
from resurge.studies.migration import Migration
from resurge.studies.simulated_migration import SimulatedMove

CSV_NAME, PLOT_NAME, SUMMARY_NAME = "migration.csv", "migration.png", "summary.md"
MOST_PAUSE, MOST_UNMOVED, MOST_MOVED = 0.05, 1.1, 1.2
NEAR_ZERO_S = 0.001
_FIGURES = ("pause_s", "completion_s", "added_latency_s", "moved_ratio", "unmoved_ratio", "longest_ratio")
_COLOURS = {"direct": "tab:red", "cpa": "tab:orange", "cpal": "tab:green", "precopy": "tab:blue"}


def write_study(moves: Sequence[Migration], simulated: Sequence[SimulatedMove], out: Path, heading: str) -> None:
    """Write the table, the figures and the summary."""
    with (out / CSV_NAME).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Migration)])
        writer.writeheader()
        writer.writerows(asdict(move) for move in moves)
    usual = medians(moves)
    _draw(usual, simulated, out / PLOT_NAME)
    (out / SUMMARY_NAME).write_text(summary(usual, simulated, heading), encoding="utf-8")


def medians(moves: Sequence[Migration]) -> list[Migration]:
    """One move for each way, size of state and replay: the median of each of its figures."""
    found: dict[tuple[str, int, int], list[Migration]] = {}
    for move in moves:
        found.setdefault((move.how, move.state_rows, move.replay_rows), []).append(move)
    return [_median(mine) for mine in found.values()]


def _median(moves: Sequence[Migration]) -> Migration:
    figures = {name: statistics.median(getattr(move, name) for move in moves) for name in _FIGURES}
    return replace(moves[0], shipped_bytes=round(statistics.median(move.shipped_bytes for move in moves)), **figures)


def results(moves: Sequence[Migration], simulated: Sequence[SimulatedMove]) -> dict[str, Any]:
    """What a result file keeps."""
    return {
        "moves": [{name: _rounded(value) for name, value in asdict(move).items()} for move in moves],
        "simulated": [{name: _rounded(value) for name, value in asdict(move).items()} for move in simulated],
        "reached": {text: agrees for agrees, text in findings(medians(moves))},
    }


def _rounded(value: Any) -> Any:
    return round(value, 5) if isinstance(value, float) else value


def of(moves: Sequence[Migration], how: str, *, state_rows: int | None = None) -> list[Migration]:
    """The moves of one way, of all sizes or of one."""
    return [move for move in moves if move.how == how and state_rows in (None, move.state_rows)]


def findings(moves: Sequence[Migration]) -> list[tuple[bool, str]]:
    """What was to be reached, each with whether it was."""
    largest = max(move.state_rows for move in moves)
    direct_s = max((move.pause_s for move in of(moves, DIRECT, state_rows=largest)), default=0.0)
    found = []
    for how in [way for way in WAYS if way in ("cpal", "precopy") and of(moves, way)]:
        mine = of(moves, how, state_rows=largest)
        pause_s = max(move.pause_s for move in mine)
        share = pause_s / direct_s if direct_s else float("inf")
        found.append(
            (share <= MOST_PAUSE, f"the pause of {how} is {share:.1%} of direct's at {largest:,} rows of state (5 % at most)")
        )
        pauses = [move.pause_s for move in mine]
        is_flat = max(pauses) - min(pauses) <= max(NEAR_ZERO_S, 0.1 * direct_s)
        found.append(
            (
                is_flat,
                f"the pause of {how} does not follow the rows to replay ({min(pauses) * 1000:.1f} to {max(pauses) * 1000:.1f} ms)",
            )
        )
        ratio = max(move.moved_ratio for move in of(moves, how))
        found.append(
            (ratio <= MOST_MOVED, f"the query that moves by {how} has at most {ratio:.2f} times its latency (1.2 at most)")
        )
    unmoved = max(move.unmoved_ratio for move in moves)
    found.append(
        (unmoved <= MOST_UNMOVED, f"queries that do not move have at most {unmoved:.2f} times their latency (1.1 at most)")
    )
    return found


def summary(moves: Sequence[Migration], simulated: Sequence[SimulatedMove], heading: str) -> str:
    """The moves as tables, and what was reached."""
    lines = ["# Moving state: ELASTIC, figures 5 and 6", "", heading, "", f"![pause and completion time]({PLOT_NAME})", ""]
    header = (
        "how",
        "rows of state",
        "rows to replay",
        "shipped",
        "pause",
        "completion",
        "latency of the moved query",
        "of others",
        "longest epoch",
    )
    lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for move in moves:
        cells = (
            move.how,
            f"{move.state_rows:,}",
            f"{move.replay_rows:,}",
            f"{move.shipped_bytes / 1e6:.2f} MB",
            f"{move.pause_s * 1000:.1f} ms",
        )
        ratios = (move.moved_ratio, move.unmoved_ratio, move.longest_ratio)
        lines.append("| " + " | ".join((*cells, f"{move.completion_s:.2f} s", *(f"{ratio:.2f}" for ratio in ratios))) + " |")
    lines += [
        "",
        "Latencies are medians during a move over the median of the epochs since the move before; the longest epoch is of any query.",
        "",
    ]
    lines += ["Simulated, with the sizes that were measured:", "", "| how | state | pause | completion |", "|---|---|---|---|"]
    for one in simulated:
        lines.append(f"| {one.how} | {one.state_bytes / 1e6:.2f} MB | {one.pause_s * 1000:.1f} ms | {one.completion_s:.2f} s |")
    lines += ["", "## What was to be reached", ""]
    lines += [f"- **{'Reached' if agrees else 'Not reached'}**: {text}." for agrees, text in findings(moves)]
    return "\n".join(lines) + "\n"


def _draw(moves: Sequence[Migration], simulated: Sequence[SimulatedMove], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    replays = sorted({move.replay_rows for move in moves})
    panels = (
        ("pause_s", "pause of the moved key group, ms", 1000.0),
        ("completion_s", "time until the move is complete, s", 1.0),
    )
    for axes, (name, label, factor) in zip(figure.subplots(1, 2), panels, strict=True):
        for how in dict.fromkeys(move.how for move in moves):
            for replay, line in zip(replays, ("-", "--", ":"), strict=False):
                points = sorted((m.state_rows, getattr(m, name) * factor) for m in of(moves, how) if m.replay_rows == replay)
                axes.plot(
                    *zip(*points, strict=True), line, color=_COLOURS[how], marker="o", label=f"{how}, {replay:,} rows to replay"
                )
        sizes = sorted({move.state_rows for move in moves})
        for how in dict.fromkeys(one.how for one in simulated):
            mine = sorted(one.state_bytes for one in simulated if one.how == how)
            values = {one.state_bytes: getattr(one, name) * factor for one in simulated if one.how == how}
            axes.plot(sizes[: len(mine)], [values[size] for size in mine], "x", color=_COLOURS[how], label=f"{how}, simulated")
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel("rows of state")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    figure.savefig(path, dpi=120)
