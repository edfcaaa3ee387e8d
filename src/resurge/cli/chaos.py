"""resurge chaos: kill nodes of a real cluster at random and compare every row."""

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from resurge.errors import ClusterError


def chaos(
    seeds: Annotated[int, typer.Option(min=1, help="How many failure schedules: seeds 1 to N.")] = 3,
    nodes: Annotated[int, typer.Option(min=2, max=32, help="Nodes of the embedded cluster.")] = 4,
    strategy: Annotated[str, typer.Option(help="incremental, blocking, eager or source-replay.")] = "incremental",
    seed: Annotated[int | None, typer.Option(help="Only this seed, to repeat a failure.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Kill and add nodes of a real Spark cluster by seed, and compare every query's rows with a failure-free run.

    Exit code 0 if nothing was lost and nothing repeated, else 1.
    """
    from resurge.experiments import chaos as experiment
    from resurge.scheduling import STRATEGIES

    if strategy not in STRATEGIES:
        raise ClusterError(f"the strategy is {strategy!r}; expected one of {', '.join(STRATEGIES)}")
    console = Console(stderr=True, quiet=as_json)
    wanted = [seed] if seed is not None else list(range(1, seeds + 1))

    def tell(verdict: experiment.Verdict) -> None:
        bad = verdict.lost or verdict.duplicated
        console.print(f"seed {verdict.seed}: {verdict.kills} nodes killed, {verdict.lost} lost, {verdict.duplicated} duplicated")
        if bad:
            console.print(f"repeat it with: {experiment.repeating(verdict.seed, nodes, strategy)}")

    with console.status(f"{len(wanted)} failure schedules on {nodes} nodes, {strategy}"):
        result = experiment.chaos(wanted, nodes, strategy, tell)
    if as_json:
        print(json.dumps(result))
    else:
        table = Table(title=f"chaos on {nodes} nodes, {strategy}")
        for column in ("seed", "nodes killed", "rows lost", "rows duplicated"):
            table.add_column(column, justify="right")
        for row in result["seeds"]:
            table.add_row(*(str(value) for value in row.values()))
        Console().print(table)
    sys.exit(1 if result["lost"] or result["duplicated"] else 0)
