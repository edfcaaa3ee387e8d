"""resurge soak: run for hours with kills and joins, and see that nothing grows."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from resurge.benchmarks.results import keep
from resurge.cli.progress_line import progress_line


def soak(
    hours: Annotated[
        float, typer.Option(min=0.1, help="How long to run; the first ten minutes, less of a short run, do not count.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Which nodes are killed, and when.")] = 1,
    out: Annotated[Path, typer.Option(help="Result file; a picture goes beside it.")] = Path("out/bench/soak.json"),
) -> None:
    """Run the 15 queries on a real cluster for hours while nodes are killed and replaced.

    Memory, descriptors and threads of driver, JVMs and Python workers, and the files of the durable store, the local stores
    and telemetry are recorded; after the first ten minutes they must stay flat. One node is never killed, so that its processes
    live long enough to show a leak. A shorter run notices only larger leaks; the result file says how large. Exit code 1 if
    something grew.
    """
    from resurge.experiments.soak import soak as run
    from resurge.experiments.soak_report import draw

    with progress_line(Console(stderr=True), "starting") as progress:
        result = run(hours, seed, progress)
    keep(result, out)
    picture = draw(result["samples"], out.with_suffix(".png"), warm_up_s=result["warm_up_s"])
    console = Console()
    console.print(f"{result['epochs']:,} epochs, {result['rows']:,} rows, {result['nodes_killed']} nodes killed")
    table = Table(title="what grew after the warm-up (the first and the last quarter of the rest)")
    for column in ("figure", "first", "last"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name, ends in result["grew"].items():
        table.add_row(name, f"{ends['first']:,.0f}", f"{ends['last']:,.0f}")
    console.print(table if result["grew"] else "nothing grew")
    console.print(f"result file: {out}; picture: {picture}", soft_wrap=True)
    sys.exit(0 if result["is_flat"] else 1)
