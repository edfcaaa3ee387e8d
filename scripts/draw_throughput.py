"""Draw docs/pictures/throughput.png from the kept result of `resurge bench throughput --json`."""

import json
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from quote_results import fingerprint

ROOT = Path(__file__).resolve().parents[1]
SYSTEMS = (
    ("Resurge", "#0b7a75"),
    ("Structured Streaming, default store", "#b3541e"),
    ("Structured Streaming, RocksDB", "#d9a68a"),
)


def rates(result: dict) -> tuple[float, float, float]:
    """Posts per second of the systems, in thousands."""
    stores = result["structured_streaming"]
    return result["resurge"] / 1000, stores["hdfs"] / 1000, stores["rocksdb"] / 1000


def words(result: dict) -> str:
    """A group of bars, and how many times faster Resurge is than the best of the others."""
    queries = "1 query" if result["queries"] == 1 else f"{result['queries']} queries"
    return f"{queries}: {result['ratio']:.1f} times"


def draw(results: list[dict], path: Path) -> None:
    """Bars per number of queries, on a logarithmic scale, each with its value."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for place, (name, colour) in enumerate(SYSTEMS):
        values = [rates(result)[place] for result in results]
        bars = axes.bar([index + (place - 1) * 0.27 for index in range(len(results))], values, 0.25, label=name, color=colour)
        axes.bar_label(bars, [f"{value:,.0f}" for value in values], fontsize=8)
    axes.set_xticks(range(len(results)), [words(result) for result in results])
    axes.set_yscale("log")
    axes.set_ylabel("thousand posts per second")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.18), fontsize=8)
    figure.savefig(path, dpi=130, metadata={"Description": fingerprint("throughput")})


if __name__ == "__main__":
    kept = json.loads((ROOT / "benchmarks/results/throughput.json").read_text())
    draw(kept["results"], ROOT / "docs/pictures/throughput.png")
