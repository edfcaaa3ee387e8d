"""What buffering and checkpoints cost, as a plot and a table; every number is computed from telemetry."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from resurge.telemetry import metrics
from resurge.telemetry.events import Event

SKIPPED_EPOCHS = 4


def write_overhead(
    runs: Mapping[str, tuple[int, bool, Sequence[Event], Sequence[Event]]], out: Path
) -> dict[str, dict[str, Any]]:
    """Write overhead.png and overhead.json; a run has its checkpoint interval, whether it buffered, and two logs."""
    found = {name: _figures(*run) for name, run in runs.items()}
    (out / "overhead.json").write_text(json.dumps(found, indent=2) + "\n")
    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3}
    with mpl.rc_context(style):
        figure = Figure(figsize=(11, 3.4), layout="constrained")
        FigureCanvasAgg(figure)
        buffering, throughput, latency = figure.subplots(1, 3)
        plain = [row for row in found.values() if not row["always_buffers"]]
        usual = [row for row in found.values() if row["always_buffers"]]
        pairs = [(row, next(p for p in plain if p["checkpoint_interval"] == row["checkpoint_interval"])) for row in usual]
        for buffered, without in pairs:
            heights = [without["posts_per_s"] / 1000, buffered["posts_per_s"] / 1000]
            buffering.bar(["when needed", "always"], heights, color=["#0b7a75", "#b3541e"], width=0.5)
        buffering.set_title("buffers")
        buffering.set_ylabel("thousand posts per second")
        intervals = [row["checkpoint_interval"] for row in plain]
        throughput.plot(intervals, [row["posts_per_s"] / 1000 for row in plain], marker="o", color="#0b7a75")
        throughput.set_title("throughput")
        throughput.set_xlabel("epochs between checkpoints")
        throughput.set_ylabel("thousand posts per second")
        throughput.set_ylim(bottom=0)
        for key, label, colour in (("latency_p50_s", "median", "#0b7a75"), ("latency_p99_s", "99th percentile", "#7b2d8b")):
            latency.plot(intervals, [row[key] for row in plain], marker="o", label=label, color=colour)
        latency.set_title("latency at a steady rate")
        latency.set_xlabel("epochs between checkpoints")
        latency.set_ylabel("seconds")
        latency.set_ylim(bottom=0)
        latency.legend(frameon=False)
        figure.savefig(out / "overhead.png", dpi=130)
    return found


def _figures(checkpoint_interval: int, always_buffers: bool, fast: Sequence[Event], steady: Sequence[Event]) -> dict[str, Any]:
    epochs = metrics.finished_epochs(fast)[SKIPPED_EPOCHS:]
    seconds = epochs[-1].at_s - epochs[0].at_s
    rows = sum(epoch.rows_read for epoch in epochs[1:])
    latencies = metrics.spread(
        seconds for epoch in metrics.finished_epochs(steady)[SKIPPED_EPOCHS:] for seconds in epoch.latency_s.values()
    )
    return {
        "checkpoint_interval": checkpoint_interval,
        "always_buffers": always_buffers,
        "posts_per_s": round(rows / seconds),
        "latency_p50_s": round(latencies.p50, 3) if latencies else None,
        "latency_p99_s": round(latencies.p99, 3) if latencies else None,
    }
