"""Draw the pictures of the documents from the kept result files: `python scripts/draw_pictures.py`.

Each picture carries a fingerprint of its result file, by which a test sees that it was drawn from it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from quote_results import ROOT, fingerprint, is_kept, load

from resurge.experiments.soak_report import draw as draw_samples
from resurge.studies.correlated_failure_report import draw_available

PICTURES = ROOT / "docs" / "pictures"
SYSTEMS = (
    ("Resurge", "#0b7a75"),
    ("Structured Streaming, default store", "#b3541e"),
    ("Structured Streaming, RocksDB", "#d9a68a"),
)


def throughput(result: dict[str, Any], path: Path, description: str) -> None:
    """Bars per number of queries, on a logarithmic scale, each with its value."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    rows = result["results"]
    for place, (name, colour) in enumerate(SYSTEMS):
        values = [_rates(row)[place] for row in rows]
        bars = axes.bar([index + (place - 1) * 0.27 for index in range(len(rows))], values, 0.25, label=name, color=colour)
        axes.bar_label(bars, [f"{value:,.0f}" for value in values], fontsize=8)
    axes.set_xticks(range(len(rows)), [_words(row) for row in rows])
    axes.set_yscale("log")
    axes.set_ylabel("thousand posts per second")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.18), fontsize=8)
    figure.savefig(path, dpi=130, metadata={"Description": description})


def _rates(row: dict[str, Any]) -> tuple[float, float, float]:
    """Posts per second of the systems, in thousands."""
    stores = row["structured_streaming"]
    return row["resurge"] / 1000, stores["hdfs"] / 1000, stores["rocksdb"] / 1000


def _words(row: dict[str, Any]) -> str:
    """A group of bars, and how many times faster Resurge is than the best of the others."""
    queries = "1 query" if row["queries"] == 1 else f"{row['queries']} queries"
    return f"{queries}: {row['ratio']:.1f} times"


def recovery(result: dict[str, Any], path: Path, description: str) -> None:
    """Available queries over time, by strategy."""
    draw_available(result["available"], path, description)


def soak(result: dict[str, Any], path: Path, description: str) -> None:
    """What processes and folders held over time."""
    draw_samples(result["samples"], path, description, result["warm_up_s"])


# Picture: the result file that it is drawn from, and how.
DRAWN: dict[str, tuple[str, Callable[[dict[str, Any], Path, str], None]]] = {
    "throughput": ("throughput", throughput),
    "recovery": ("correlated-failure", recovery),
    "soak": ("soak", soak),
}


def draw_all() -> None:
    """Draw every picture whose result file is kept."""
    for picture, (name, draw) in DRAWN.items():
        if is_kept(name):
            draw(load(name), PICTURES / f"{picture}.png", fingerprint(name))


if __name__ == "__main__":
    draw_all()
