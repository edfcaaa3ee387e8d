"""resurge bench throughput | state: ratios inside one run."""

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from resurge.cli.telling import telling

app = typer.Typer(no_args_is_help=True, help="Measure on this machine; every figure is a ratio inside one run.")


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
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Posts per second of sliding-window counts: Resurge, Structured Streaming (both state stores), plain Polars."""
    from resurge.benchmarks.throughput import measure
    from resurge.benchmarks.workload import Workload

    console = Console(stderr=True, quiet=as_json)
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
        workload = Workload(Path(folder), posts, posts_per_epoch, cores)
        with telling(console, "generating posts") as tell:
            workload.write()
            results = [measure(workload, number, tell) for number in _whole_numbers(queries)]
    if as_json:
        print(json.dumps({"results": results}))
        return
    table = Table(title="thousand posts per second, steady state")
    for column in (
        "queries",
        "Resurge",
        "SS default store",
        "SS RocksDB",
        "plain Polars",
        "Resurge / best SS",
        "Resurge / Polars",
    ):
        table.add_column(column, justify="right")
    for row in results:
        stores = row["structured_streaming"]
        rates = (row["resurge"], stores["hdfs"], stores["rocksdb"], row["polars"])
        table.add_row(
            str(row["queries"]), *(f"{rate / 1000:,.0f}" for rate in rates), f"{row['ratio']:.1f}", f"{row['ceiling']:.2f}"
        )
    Console().print(table)


@app.command()
def state(
    keys: Annotated[int, typer.Option(min=200_000, help="Keys in the large state.")] = 5_000_000,
    changed: Annotated[int, typer.Option(min=1_000, help="Keys changed per epoch.")] = 20_000,
    epochs: Annotated[int, typer.Option(min=10, help="Measured epochs per setting.")] = 80,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """What an epoch costs with a small and a large state, and what checkpoints cost."""
    from resurge.benchmarks.state import measure

    console = Console(stderr=True, quiet=as_json)
    with telling(console, "running") as tell:
        result = measure(keys, changed, epochs, tell)
    if as_json:
        print(json.dumps(result))
        return
    table = Table(title=f"{changed:,} keys changed per epoch")
    for column in ("100,000 keys", f"{keys:,} keys", "ratio", "checkpoint overhead"):
        table.add_column(column, justify="right")
    table.add_row(
        f"{result['small_ms']:.0f} ms",
        f"{result['large_ms']:.0f} ms",
        f"{result['ratio']:.2f}",
        f"{result['checkpoint_overhead']:.1%}",
    )
    Console().print(table)
