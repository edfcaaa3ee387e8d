"""Quote result files in the documents: `python scripts/quote_results.py` rewrites every quoted figure and table.

A figure is written as <!--=throughput:results.0.ratio|.1f-->3.9<!--/-->: result file, path in it, format. A table is
written between <!--table:throughput--> and <!--/table-->. A test checks that all of them say what the files say.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FIGURE = re.compile(r"<!--=([a-z-]+):([\w.-]+)\|([^>]*?)-->(.*?)<!--/-->")
TABLE = re.compile(r"<!--table:([a-z-]+)-->\n(.*?)<!--/table-->", re.DOTALL)


def documents() -> list[Path]:
    """Every page of the project."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])


def load(name: str) -> dict[str, Any]:
    """A result file."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def figure(name: str, path: str, form: str) -> str:
    """One figure of a result file as text; a format may begin with a factor, as in *1000,.0f."""
    value: Any = load(name)
    for step in path.split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    factor, _, spec = form.partition(",") if form.startswith("*") else ("*1", "", form)
    return str(value) if not spec else format(value * float(factor[1:]) if factor != "*1" else value, spec)


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    head = list(header)
    lines = [head, ["---"] * len(head), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def throughput(result: dict[str, Any]) -> str:
    """Posts per second of every system."""
    rows = []
    for row in result["results"]:
        stores = row["structured_streaming"]
        rates = (row["resurge"], stores["hdfs"], stores["rocksdb"], row["plain"])
        rows.append(
            [str(row["queries"]), *(f"{rate / 1000:,.0f} k/s" for rate in rates), f"{row['ratio']:.1f}", f"{row['ceiling']:.2f}"]
        )
    names = (
        "Resurge",
        "Structured Streaming, default store",
        "RocksDB",
        "plain program",
        "Resurge / best",
        "Resurge / plain program",
    )
    return table(("queries", *names), rows)


def growth(result: dict[str, Any]) -> str:
    """Seconds per epoch."""
    keys = ("queries", "key_groups", "partitions", "seconds")
    rows = [[f"{row[key]:.3f}" if key == "seconds" else f"{row[key]:,}" for key in keys] for row in result["results"]]
    return table(("queries", "key groups", "partitions", "seconds per epoch"), rows)


def latency(result: dict[str, Any]) -> str:
    """Latencies of every system."""

    def words(found: dict[str, float]) -> str:
        return f"{found['p50_s']:.2f} ({found['p99_s']:.2f})"

    systems = ("resurge", "resurge_default_interval", "structured_streaming")
    rows = [[str(row["queries"]), *(words(row[name]) for name in systems), f"{row['ratio']:.2f}"] for row in result["results"]]
    names = (
        "Resurge, as fast as it can",
        "Resurge, default interval",
        "Structured Streaming, as fast as it can",
        "ratio of medians",
    )
    return table(("queries", *names), rows)


def state(result: dict[str, Any]) -> str:
    """Cost of state and of checkpoints."""
    return table(
        ("100,000 keys", "5 million keys", "ratio", "checkpoint overhead"),
        [
            (
                f"{result['small_ms']:.0f} ms",
                f"{result['large_ms']:.0f} ms",
                f"{result['ratio']:.2f}",
                f"{result['checkpoint_overhead']:.1%}",
            )
        ],
    )


def correlated_failure(result: dict[str, Any]) -> str:
    """What a correlated failure costs, by strategy."""

    def seconds(value: float | None) -> str:
        return "not within the run" if value is None else f"{value:.1f} s"

    rows = []
    for name, found in result["results"].items():
        healthy, growing = found["healthy_latency_ratio"], found["latency_growth"]
        rows.append(
            [
                name,
                *(seconds(found[key]) for key in ("first_back_s", "all_back_s", "all_available_s")),
                f"{found['outage_area']:,.0f}",
                "none was left" if healthy is None else f"{healthy:.2f}",
                "-" if growing is None else f"{growing:+.2f} s per s",
            ]
        )
    names = ("strategy", "first query back", "all back", "all at normal latency", "outage area")
    return table((*names, "latency of queries that were never down, times usual", "latency grows by"), rows)


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "throughput": throughput,
    "growth": growth,
    "latency": latency,
    "state": state,
    "correlated-failure": correlated_failure,
}


def origin(name: str) -> str:
    """Where a result comes from, as a line below its table."""
    result = load(name)
    return f"\n`{result['command']}` at commit {result['commit']}, {result['date'][:10]}, {result['machine']}.\n"


def quoted(text: str) -> str:
    """A page with every figure and table as the result files have them now."""
    text = TABLE.sub(
        lambda found: f"<!--table:{found[1]}-->\n{TABLES[found[1]](load(found[1]))}{origin(found[1])}<!--/table-->", text
    )
    return FIGURE.sub(
        lambda found: f"<!--={found[1]}:{found[2]}|{found[3]}-->{figure(found[1], found[2], found[3])}<!--/-->", text
    )


def fingerprint(*names: str) -> str:
    """What a picture carries that is drawn from result files, so that a test sees when they have changed."""
    return hashlib.sha256(b"".join((RESULTS / f"{name}.json").read_bytes() for name in names)).hexdigest()[:16]


if __name__ == "__main__":
    for page in documents():
        now = page.read_text()
        if (then := quoted(now)) != now:
            page.write_text(then)
            print(f"rewrote {page.relative_to(ROOT)}")
