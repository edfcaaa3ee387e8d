"""Quote result files in the documents: `python scripts/quote_results.py` rewrites every quoted figure and table.

A figure is written as <!--=throughput:results.0.ratio|.1f-->3.9<!--/-->: result file, path in it, format. A table is
written between <!--table:throughput--> and <!--/table-->. A test checks that all of them say what the files say. What is
quoted of a file that is not there, or that was measured before result files named versions, stays as it is.
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
PROVENANCE = ("command", "commit", "date", "machine", "versions")


def documents() -> list[Path]:
    """Every page of the project."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])


def load(name: str) -> dict[str, Any]:
    """A result file."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def is_kept(name: str) -> bool:
    """Whether there is a result file that says where its figures come from."""
    return (RESULTS / f"{name}.json").exists() and set(PROVENANCE) <= set(load(name))


def figure(name: str, path: str, form: str) -> str:
    """One figure of a result file as text; a format may begin with a factor, as in *1000,.0f."""
    value: Any = load(name)
    for step in path.split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    factor, _, spec = form.partition(",") if form.startswith("*") else ("*1", "", form)
    if value is None or not spec:
        return "none" if value is None else str(value)
    return format(value * float(factor[1:]) if factor != "*1" else value, spec)


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    head = list(header)
    lines = [head, ["---"] * len(head), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def seconds(value: float | None) -> str:
    """A moment after the failure."""
    return "not within the run" if value is None else f"{value:.1f} s"


def times(value: float | None) -> str:
    """A ratio that may not have been measurable."""
    return "none" if value is None else f"{value:.2f}"


def throughput(result: dict[str, Any]) -> str:
    """Posts per second of every system."""
    rows = []
    for row in result["results"]:
        stores = row["structured_streaming"]
        rates = (row["resurge"], stores["hdfs"], stores["rocksdb"], row["plain"])
        rows.append(
            [str(row["queries"]), *(f"{rate / 1000:,.0f} k/s" for rate in rates), f"{row['ratio']:.1f}", f"{row['ceiling']:.2f}"]
        )
    names = ("Resurge", "Structured Streaming, default store", "RocksDB", "plain program")
    return table(("queries", *names, "Resurge / best", "Resurge / plain program"), rows)


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
    names = ("Resurge, as fast as it can", "Resurge, default interval", "Structured Streaming, as fast as it can")
    return table(("queries", *names, "ratio of medians"), rows)


def state(result: dict[str, Any]) -> str:
    """Cost of state and of checkpoints."""
    small, large = (f"{result[name]:.0f} ms" for name in ("small_ms", "large_ms"))
    row = (small, large, f"{result['ratio']:.2f}", f"{result['checkpoint_overhead']:.1%}")
    return table(("100,000 keys", f"{result['keys'] / 1e6:g} million keys", "ratio", "checkpoint overhead"), [row])


def slots(result: dict[str, Any]) -> str:
    """What an empty job costs."""
    counts, millis = ("slots", "calls_for_new_nodes", "calls_per_job"), ("plan_ms", "job_ms", "task_ms")
    rows = [[*(f"{row[name]:,}" for name in counts), *(f"{row[name]:.1f}" for name in millis)] for row in result["results"]]
    names = ("slots", "calls into the JVM for new nodes", "calls per job", "planning, ms", "job, ms", "per task, ms")
    return table(names, rows)


def connectors(result: dict[str, Any]) -> str:
    """Rows per second of sources and sinks."""
    rows = [[name.replace("-", " ") + " source", f"{rate / 1000:,.0f} k/s", "", ""] for name, rate in result["sources"].items()]
    for name, found in result["sinks"].items():
        ratios = (f"{found[key]:.2f}" if key in found else "" for key in ("of_parquet_sink", "of_bare_client"))
        rows.append([f"{name} sink", f"{found['rows_per_s'] / 1000:,.0f} k/s", *ratios])
    return table(("", "rows per second", "of the Parquet sink", "of its bare client"), rows)


def connector_crashes(result: dict[str, Any]) -> str:
    """What kills and restarts did to each connector's output."""
    keys = ("driver_kills", "node_kills", "servers_restarted", "rows", "lost", "repeated")
    rows = [[name, *(f"{found[key]:,}" for key in keys)] for name, found in result["results"].items()]
    return table(("sink", *(key.replace("_", " ") for key in keys)), rows)


def correlated_failure(result: dict[str, Any]) -> str:
    """What a correlated failure costs, by strategy."""
    rows = []
    for name, found in result["results"].items():
        growing = found["latency_growth"]
        moments = (seconds(found[key]) for key in ("first_back_s", "all_back_s", "all_available_s"))
        grows = "-" if growing is None else f"{growing:+.2f} s per s"
        rows.append([name, *moments, f"{found['outage_area']:,.0f}", times(found["healthy_latency_ratio"]), grows])
    names = ("strategy", "first query back", "all back", "all at normal latency", "outage area")
    return table((*names, "latency of queries that were never down, times usual", "latency grows by"), rows)


def correlated_failure_large(result: dict[str, Any]) -> str:
    """What a correlated failure costs on a large cluster, and how long epochs take afterwards."""
    rows = []
    for name, found in result["results"].items():
        moments = (seconds(found[key]) for key in ("first_back_s", "all_back_s", "all_available_s"))
        rows.append([name, *moments, f"{found['outage_area']:,.0f}", times(found["epochs_ratio"])])
    names = ("strategy", "first query back", "all back", "all at normal latency", "outage area")
    return table((*names, "epochs at the end, times as long as before"), rows)


def correlated_failure_figures(result: dict[str, Any]) -> str:
    """The other cases."""
    rows = []
    for name, cases in result["figures"].items():
        for case, found in cases.items():
            moments = (seconds(found[key]) for key in ("first_back_s", "all_back_s", "all_available_s"))
            ratios = (times(found[key]) for key in ("healthy_latency_ratio", "join_latency_ratio"))
            rows.append([name, case, str(found["queries_down"]), *moments, f"{found['outage_area']:,.0f}", *ratios])
    names = ("figure", "run", "queries down", "first back", "all back", "all at normal latency", "outage area")
    return table((*names, "queries never down, latency", "after joins, at most"), rows)


def overhead(result: dict[str, Any]) -> str:
    """What checkpoints and buffers cost without failures."""
    rows = [
        [
            str(row["checkpoint_interval"]),
            "always" if row["always_buffers"] else "when needed",
            f"{row['posts_per_s']:,}",
            times(row["latency_p50_s"]),
            times(row["latency_p99_s"]),
        ]
        for row in result["overhead"].values()
    ]
    return table(("epochs between checkpoints", "buffers", "posts per second", "median latency, s", "99th percentile, s"), rows)


def chaos(result: dict[str, Any]) -> str:
    """What became of all seeds of a fault."""
    seeds = result["seeds"]
    sums = (sum(row[key] for row in seeds) for key in ("kills", "disturbed", "lost", "duplicated"))
    row = [", ".join(result["faults"]), str(len(seeds)), *(f"{value:,}" for value in sums)]
    return table(("fault", "seeds", "nodes killed", "times cut or stopped", "rows lost", "rows too many"), [row])


def soak(result: dict[str, Any]) -> str:
    """What processes and folders held at the beginning and at the end."""
    rows = []
    for name, ends in result["ends"].items():
        unit, word = (2**20, " MiB") if name.endswith("bytes") else (1, "")
        rows.append([name.replace("_bytes", ""), *(f"{ends[end] / unit:,.0f}{word}" for end in ("first", "last"))])
    return table(("", "after the warm-up", "at the end"), rows)


def plain(result: dict[str, Any]) -> str:
    """Rows of figures as they are."""
    rows = result["results"]
    columns = list(rows[0])
    shown = ([f"{row[name]:,.4g}" if isinstance(row[name], float) else f"{row[name]:,}" for name in columns] for row in rows)
    return table((name.replace("_", " ") for name in columns), shown)


def balance(result: dict[str, Any]) -> str:
    """With and without balancing."""
    rows = []
    for name in ("balanced", "unbalanced"):
        found = result[name]
        even = ", ".join("never" if value is None else f"{value:.0f} s" for value in found["even_after_s"])
        rows.append(
            [name, f"{found['imbalance']:.2f}", even, f"{found['p99_s']:.2f} s", f"{found['rows_per_s']:,}", str(found["moved"])]
        )
    names = ("highest over mean utilisation", "even after each change", "p99 of an epoch", "rows per second", "partitions moved")
    return table(("", *names), rows)


def elastic(result: dict[str, Any]) -> str:
    """A join and a drain."""
    join, drain = result["join"], result["drain"]
    return table(
        ("", "seconds", "latency, times normal"),
        [
            ["a node that joins carries 80 % of the average", seconds(join["carries_after_s"]), times(join["latency_ratio"])],
            ["a node is drained", seconds(drain["took_s"]), times(drain["latency_ratio"])],
        ],
    )


def migration(result: dict[str, Any]) -> str:
    """Every move."""
    rows = []
    for move in result["moves"]:
        cells = [move["how"], f"{move['state_rows']:,}", f"{move['replay_rows']:,}", f"{move['shipped_bytes'] / 1e6:.1f} MB"]
        ratios = [times(move[name]) for name in ("moved_ratio", "unmoved_ratio")]
        rows.append([*cells, f"{move['pause_s'] * 1000:.1f} ms", f"{move['completion_s']:.1f} s", *ratios])
    names = ("how", "rows of state", "rows to replay", "shipped", "pause", "completion", "moved query, latency", "others")
    return table(names, rows)


def checkpoint_placement(result: dict[str, Any]) -> str:
    """What copies were worth when load grew."""
    rows = [
        [
            str(row["key_groups"]),
            row["algorithm"],
            f"{row['assisted_share']:.0%}",
            f"{row['usable_share']:.0%}",
            f"{row['saved_s']:.1f} s",
        ]
        for row in result["simulated"]
    ]
    return table(("key groups per operator", "copies placed by", "assisted moves", "usable copies", "saved"), rows)


def swinging_load(result: dict[str, Any]) -> str:
    """What copies were worth when load swung, on a real cluster and simulated."""
    rows = [["real cluster", row["algorithm"], str(row["moves"]), str(row["assisted"])] for row in result["swinging_real"]]
    rows += [["simulated", name, str(row["moves"]), str(row["assisted"])] for name, row in result["swinging_simulated"].items()]
    return table(("", "copies placed by", "moves", "assisted by a copy"), rows)


# Table: the result file that it is made from, and how.
TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "throughput": ("throughput", throughput),
    "growth": ("growth", growth),
    "cluster-growth": ("cluster-growth", growth),
    "latency": ("latency", latency),
    "state": ("state", state),
    "slots": ("slots", slots),
    "driver": ("driver", plain),
    "balance": ("balance", balance),
    "elastic": ("elastic", elastic),
    "migration": ("migration", migration),
    "checkpoint-placement": ("checkpoint-placement", checkpoint_placement),
    "swinging-load": ("checkpoint-placement", swinging_load),
    "connectors": ("connectors", connectors),
    "connector-crashes": ("connector-crashes", connector_crashes),
    "correlated-failure": ("correlated-failure", correlated_failure),
    "correlated-failure-simulated": ("correlated-failure-simulated", correlated_failure),
    "correlated-failure-large": ("correlated-failure-large", correlated_failure_large),
    "correlated-failure-figures": ("correlated-failure-figures", correlated_failure_figures),
    "overhead": ("correlated-failure-figures", overhead),
    "chaos-kill": ("chaos-kill", chaos),
    "chaos-cut": ("chaos-cut", chaos),
    "chaos-hang": ("chaos-hang", chaos),
    "soak": ("soak", soak),
}


def origin(name: str) -> str:
    """Where a result comes from, as a line below its table."""
    result = load(name)
    return f"\n`{result['command']}` at commit {result['commit']}, {result['date'][:10]}, {result['machine']}.\n"


def quoted(text: str) -> str:
    """A page with every figure and table as the result files have them now."""
    return FIGURE.sub(_figure, TABLE.sub(_table, text))


def _table(found: re.Match[str]) -> str:
    name, make = TABLES[found[1]]
    return f"<!--table:{found[1]}-->\n{make(load(name))}{origin(name)}<!--/table-->" if is_kept(name) else found[0]


def _figure(found: re.Match[str]) -> str:
    name, path, form = found[1], found[2], found[3]
    return f"<!--={name}:{path}|{form}-->{figure(name, path, form)}<!--/-->" if is_kept(name) else found[0]


def fingerprint(*names: str) -> str:
    """What a picture carries that is drawn from result files, so that a test sees when they have changed."""
    return hashlib.sha256(b"".join((RESULTS / f"{name}.json").read_bytes() for name in names)).hexdigest()[:16]


def quote_all() -> None:
    """Rewrite the pages in which something has changed."""
    for page in documents():
        now = page.read_text()
        if (then := quoted(now)) != now:
            page.write_text(then)
            print(f"rewrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    quote_all()
