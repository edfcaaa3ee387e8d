"""resurge bench throughput, growth, latency, state, slots, driver, connectors, balance, elastic: ratios inside one run, each kept in a file."""

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from resurge.benchmarks.results import DEFAULT_FOLDER, keep
from resurge.cli.progress_line import progress_line

app = typer.Typer(no_args_is_help=True, help="Measure on this machine; every figure is a ratio inside one run.")

Out = Annotated[Path | None, typer.Option("--out", help="Result file; out/bench/<name>.json if not given.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON.")]


def _kept(name: str, results: dict[str, Any], out: Path | None, as_json: bool) -> None:
    """Write the result file, and print the figures as JSON if that was asked for."""
    path = out or DEFAULT_FOLDER / f"{name}.json"
    keep(results, path)
    if as_json:
        print(json.dumps(results))
    Console(stderr=True, quiet=as_json).print(f"result file: {path}", soft_wrap=True)


def _whole_numbers(text: str) -> list[int]:
    try:
        numbers = [int(item) for item in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise typer.BadParameter(f"{text!r}; expected numbers of queries such as 1,5,15")
    return numbers


@app.command()
def throughput(
    queries: Annotated[str, typer.Option(help="Numbers of queries, separated by commas.")] = "1,5,15",
    posts: Annotated[int, typer.Option(min=100_000, help="Generated posts in all.")] = 4_000_000,
    posts_per_epoch: Annotated[int, typer.Option(min=10_000, help="Posts in one epoch.")] = 400_000,
    cores: Annotated[int, typer.Option(min=1)] = 2,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Posts per second of sliding-window counts: Resurge, Structured Streaming (both state stores), a plain program."""
    from resurge.benchmarks.throughput import measure
    from resurge.benchmarks.workload import Workload

    console = Console(stderr=True, quiet=as_json)
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
        workload = Workload(Path(folder), posts, posts_per_epoch, cores)
        with progress_line(console, "generating posts") as progress:
            workload.write()
            results = [measure(workload, number, progress) for number in _whole_numbers(queries)]
    _kept("throughput", {"results": results}, out, as_json)
    if as_json:
        return
    table = Table(title="thousand posts per second, steady state")
    for column in (
        "queries",
        "Resurge",
        "SS default store",
        "SS RocksDB",
        "plain program",
        "Resurge / best SS",
        "Resurge / plain",
    ):
        table.add_column(column, justify="right")
    for row in results:
        stores = row["structured_streaming"]
        rates = (row["resurge"], stores["hdfs"], stores["rocksdb"], row["plain"])
        table.add_row(
            str(row["queries"]), *(f"{rate / 1000:,.0f}" for rate in rates), f"{row['ratio']:.1f}", f"{row['ceiling']:.2f}"
        )
    Console().print(table)


@app.command()
def state(
    keys: Annotated[int, typer.Option(min=200_000, help="Keys in the large state.")] = 5_000_000,
    changed: Annotated[int, typer.Option(min=1_000, help="Keys changed per epoch.")] = 20_000,
    epochs: Annotated[int, typer.Option(min=10, help="Measured epochs per setting.")] = 300,
    checkpoints: Annotated[int, typer.Option(min=1, help="Measured checkpoints, at the default interval.")] = 9,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """What an epoch costs with a small and a large state, and what checkpoints cost."""
    from resurge.benchmarks.state import measure

    console = Console(stderr=True, quiet=as_json)
    with progress_line(console, "running") as progress:
        result = measure(keys, changed, epochs, checkpoints, progress)
    _kept("state", result, out, as_json)
    if as_json:
        return
    table = Table(title=f"{changed:,} keys changed per epoch")
    columns = ("100,000 keys", f"{keys:,} keys", "ratio", "checkpoint overhead", "MB per million keys", "restore", "plain copy")
    for column in columns:
        table.add_column(column, justify="right")
    table.add_row(
        f"{result['small_ms']:.0f} ms",
        f"{result['large_ms']:.0f} ms",
        f"{result['ratio']:.2f}",
        f"{result['checkpoint_overhead']:.1%}",
        f"{result['memory_mb_per_million_keys']:.0f}",
        f"{result['restore_s']:.2f} s",
        f"{result['copy_s']:.2f} s",
    )
    Console().print(table)


@app.command()
def growth(
    cores: Annotated[int, typer.Option(min=1)] = 2,
    nodes: Annotated[int, typer.Option(min=0, help="Nodes of an embedded cluster; 0 for local mode.")] = 0,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Seconds per epoch of 20,000 posts over numbers of queries and key groups."""
    from resurge.benchmarks.growth import CLUSTER_SETTINGS, SETTINGS, measure, measure_cluster

    with progress_line(Console(stderr=True, quiet=as_json), "starting Spark") as progress:
        result = measure_cluster(CLUSTER_SETTINGS, nodes, progress) if nodes else measure(SETTINGS, cores, progress)
    _kept("cluster-growth" if nodes else "growth", result, out, as_json)
    if as_json:
        return
    told = [f"64 key groups against the fewest: {result['key_group_ratio']:.2f}"]
    if "per_query_ms" in result:
        told.append(f"a query more: {result['per_query_ms']:.1f} ms")
    table = Table(title="seconds per epoch of 20,000 posts", caption="; ".join(told))
    for column in ("queries", "key groups", "partitions", "seconds"):
        table.add_column(column, justify="right")
    for row in result["results"]:
        table.add_row(str(row["queries"]), str(row["key_groups"]), f"{row['partitions']:,}", f"{row['seconds']:.3f}")
    Console().print(table)


@app.command()
def latency(
    queries: Annotated[str, typer.Option(help="Numbers of queries, separated by commas.")] = "1,5,15",
    rows_per_s: Annotated[int, typer.Option(min=100, help="Rows that arrive per second.")] = 5_000,
    seconds: Annotated[float, typer.Option(min=10, help="How long rows are measured, after a warm-up.")] = 60,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """From a row's arrival to its committed result: Resurge and Structured Streaming at a steady rate."""
    from resurge.benchmarks.latency import measure

    with progress_line(Console(stderr=True, quiet=as_json), "generating posts") as progress:
        result = measure(_whole_numbers(queries), rows_per_s, seconds, progress)
    _kept("latency", result, out, as_json)
    if as_json:
        return
    table = Table(title=f"seconds from arrival to committed result, {rows_per_s:,} rows per second: p50 (p99)")
    for column in ("queries", "Resurge", "Resurge, default interval", "Structured Streaming", "Resurge / Structured Streaming"):
        table.add_column(column, justify="right")
    for row in result["results"]:
        told = [row[name] for name in ("resurge", "resurge_default_interval", "structured_streaming")]
        table.add_row(str(row["queries"]), *(f"{it['p50_s']:.2f} ({it['p99_s']:.2f})" for it in told), f"{row['ratio']:.2f}")
    Console().print(table)


@app.command()
def slots(
    numbers: Annotated[str, typer.Option("--slots", help="Numbers of slots, separated by commas.")] = "16,64,256",
    cores: Annotated[int, typer.Option(min=1)] = 2,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """What an empty job costs over the number of slots: calls into the JVM, planning and running."""
    from resurge.benchmarks.slots import measure

    with progress_line(Console(stderr=True, quiet=as_json), "starting Spark") as progress:
        result = measure(_whole_numbers(numbers), cores, progress)
    _kept("slots", result, out, as_json)
    if as_json:
        return
    table = Table(title=f"an empty job of two levels on {cores} cores")
    for column in ("slots", "calls for new nodes", "calls per job", "plan, ms", "job, ms", "per task, ms"):
        table.add_column(column, justify="right")
    for row in result["results"]:
        calls = (str(row[name]) for name in ("slots", "calls_for_new_nodes", "calls_per_job"))
        table.add_row(*calls, *(f"{row[name]:.1f}" for name in ("plan_ms", "job_ms", "task_ms")))
    Console().print(table)


@app.command()
def driver(
    partitions: Annotated[str, typer.Option(help="Numbers of partitions, separated by commas.")] = "100,1000,10000",
    slots: Annotated[str, typer.Option(help="Numbers of slots, separated by commas.")] = "4,64,256",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """The driver's own time per steady epoch, without Spark."""
    from resurge.benchmarks.driver import measure

    with progress_line(Console(stderr=True, quiet=as_json), "running") as progress:
        result = measure(_whole_numbers(partitions), _whole_numbers(slots), progress)
    _kept("driver", result, out, as_json)
    if as_json:
        return
    table = Table(title="the driver's own milliseconds per epoch")
    for column in ("partitions", "slots", "median", "mean, with checkpoints"):
        table.add_column(column, justify="right")
    for row in result["results"]:
        table.add_row(f"{row['partitions']:,}", str(row["slots"]), f"{row['driver_ms']:.1f}", f"{row['mean_ms']:.1f}")
    Console().print(table)


@app.command()
def connectors(
    rows: Annotated[int, typer.Option(min=100_000, help="Rows in the topic and in the files.")] = 4_000_000,
    rows_per_epoch: Annotated[int, typer.Option(min=10_000, help="Rows in one epoch.")] = 200_000,
    kafka: Annotated[str, typer.Option(envvar="RESURGE_KAFKA", help="Kafka brokers.")] = "",
    postgres: Annotated[str, typer.Option(envvar="RESURGE_POSTGRES", help="PostgreSQL DSN.")] = "",
    spark_jars: Annotated[
        str, typer.Option(help="Folder with the jars of Spark's Kafka connector.")
    ] = "build/services/spark-kafka/libs",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Rows per second of the Kafka source against Parquet and Spark's own connector, and of every sink against its bare client."""
    from resurge.benchmarks.connectors import Servers, measure

    if not kafka or not postgres or not any(Path(spark_jars).glob("*.jar")):
        raise typer.BadParameter(
            'expected servers and jars: eval "$(scripts/services.sh start)"; scripts/services.sh jars spark-kafka',
            param_hint="--kafka",
        )
    console = Console(stderr=True, quiet=as_json)
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder, progress_line(console, "filling a topic") as progress:
        result = measure(Path(folder), Servers(kafka, postgres, spark_jars), rows, rows_per_epoch, progress)
    _kept("connectors", result, out, as_json)
    if as_json:
        return
    table = Table(title="thousand rows per second, a windowed count behind every source")
    for column in ("", "rows/s", "of Parquet", "of bare client", "small epochs/s"):
        table.add_column(column, justify="right")
    for name, rate in result["sources"].items():
        table.add_row(name, f"{rate / 1000:,.0f}")
    for name, found in result["sinks"].items():
        bare = f"{found['of_bare_client']:.2f}" if "of_bare_client" in found else "-"
        rate = f"{found['rows_per_s'] / 1000:,.0f}"
        table.add_row(f"{name} sink", rate, f"{found['of_parquet_sink']:.2f}", bare, f"{found['epochs_per_s']:.0f}")
    Console().print(table)


@app.command()
def balance(
    phase: Annotated[float, typer.Option(min=40, metavar="SECONDS", help="How long keys keep their places.")] = 60,
    changes: Annotated[int, typer.Option(min=1, help="How often they change them.")] = 2,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Skewed load that shifts, on four nodes, with and without balancing: imbalance, length of epochs, rows per second."""
    from resurge.benchmarks.balance import measure

    with progress_line(Console(stderr=True, quiet=as_json), "starting a cluster") as progress:
        result = measure(phase, changes, progress)
    _kept("balance", result, out, as_json)
    if as_json:
        return
    told = f"whole key groups allow {result['hash_ideal']:.2f}; {result['throughput_ratio']:.2f} times the rows with balancing"
    table = Table(title="four nodes, Zipf keys that change places", caption=told)
    for column in ("", "highest over mean utilisation", "p99 of an epoch", "rows/s", "partitions moved"):
        table.add_column(column, justify="right")
    for name in ("balanced", "unbalanced"):
        found = result[name]
        table.add_row(
            name, f"{found['imbalance']:.2f}", f"{found['p99_s']:.2f} s", f"{found['rows_per_s']:,}", str(found["moved"])
        )
    Console().print(table)


@app.command()
def elastic(out: Out = None, as_json: AsJson = False) -> None:
    """A node joins three that are loaded, then one is drained: how soon load follows, and what queries notice."""
    from resurge.benchmarks.elastic import measure

    with progress_line(Console(stderr=True, quiet=as_json), "starting a cluster") as progress:
        result = measure(progress)
    _kept("elastic", result, out, as_json)
    if as_json:
        return
    table = Table(title=f"{result['rows_per_s']:,} rows per second on three nodes, then four, then three")
    for column in ("", "seconds", "latency against normal"):
        table.add_column(column, justify="right")
    join, drain = result["join"], result["drain"]
    after = "not within 20" if join["carries_after_s"] is None else f"{join['carries_after_s']:.1f}"
    table.add_row("until a new node carries 80 % of the average", after, f"{join['latency_ratio']:.2f}")
    table.add_row("until a drained node is empty", f"{drain['took_s']:.1f}", f"{drain['latency_ratio']:.2f}")
    Console().print(table)
