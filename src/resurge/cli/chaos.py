"""resurge chaos: kill nodes of a real cluster and compare every row."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from resurge.benchmarks.results import keep
from resurge.errors import ClusterError

TRACE_HELP = "Failures of real machines: node, start and end with a header, or milliseconds, add or remove, node. May be gzipped."
ARRIVALS_HELP = "Start-up times of real machines: a column called seconds, or one number a line. May be gzipped."


def chaos(  # noqa: PLR0913, PLR0917
    seeds: Annotated[int, typer.Option(min=1, help="How many failure schedules: seeds 1 to N.")] = 3,
    nodes: Annotated[int, typer.Option(min=2, max=32, help="Nodes of the embedded cluster.")] = 4,
    strategy: Annotated[str, typer.Option(help="incremental, blocking, eager or source-replay.")] = "incremental",
    seed: Annotated[int | None, typer.Option(help="Only this seed, to repeat a failure.")] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help=TRACE_HELP)] = None,
    arrivals: Annotated[Path | None, typer.Option(metavar="FILE", help=ARRIVALS_HELP)] = None,
    faults: Annotated[
        str, typer.Option(help="What happens: kill, cut (links; as root, on Linux), hang, and requests: move, drain, scale.")
    ] = "kill",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a result file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; progress goes to standard error.")] = False,
) -> None:
    """Kill, cut off, stop and add nodes of a real Spark cluster by seed, and compare every row with a failure-free run.

    Failures are drawn at random; with --trace a seed chooses a burst of failures of real machines. Replacements come after
    some seconds; with --arrivals after start-up times of real machines. Times of real machines are scaled to fit the run.
    Exit code 0 if nothing was lost and nothing repeated, 1 if it was, 2 if a file does not fit.
    """
    from resurge.coordinator.scheduling import STRATEGIES
    from resurge.experiments import chaos as experiment
    from resurge.experiments.asking import REQUESTED
    from resurge.experiments.failure_schedules import FailureSchedules
    from resurge.testing.fault_injection import FAULTS

    if strategy not in STRATEGIES:
        raise ClusterError(f"the strategy is {strategy!r}; expected one of {', '.join(STRATEGIES)}")
    drawn = list(dict.fromkeys(fault.strip() for fault in faults.split(",")))
    known = (*FAULTS, *REQUESTED)
    if not set(drawn) <= set(known):
        raise ClusterError(f"the faults are {faults!r}; expected some of {', '.join(known)}, such as --faults kill,hang")
    if trace is not None and drawn != ["kill"]:
        raise ClusterError("a failure trace tells of machines that died; leave --faults out, or --trace")
    schedules = FailureSchedules.read(experiment.EPOCHS, nodes, trace, arrivals, tuple(drawn))
    console = Console(stderr=True)
    wanted = [seed] if seed is not None else list(range(1, seeds + 1))

    def progress(verdict: experiment.Verdict) -> None:
        disturbed = f"{verdict.disturbed} times cut or stopped, " if verdict.disturbed else ""
        disturbed += f"{verdict.moved} partitions moved, " if verdict.moved else ""
        disturbed += f"{verdict.scaled} changes of the number of nodes, " if verdict.scaled else ""
        found = f"{verdict.kills} nodes killed, {disturbed}{verdict.lost} lost, {verdict.duplicated} duplicated, {verdict.took_s:.0f} s"
        console.print(f"seed {verdict.seed}: {found}")
        if verdict.lost or verdict.duplicated:
            repeat = repeating(verdict.seed, nodes, strategy, trace, arrivals, faults=",".join(drawn))
            console.print(f"repeat it with: {repeat}", soft_wrap=True)

    with console.status(f"{len(wanted)} failure schedules on {nodes} nodes, {strategy}"):
        result = experiment.chaos(wanted, schedules, strategy, progress)
    if out is not None:
        keep(result, out)
    if as_json:
        print(json.dumps(result))
    else:
        table = Table(title=f"chaos on {nodes} nodes, {strategy}")
        for column in ("seed", "nodes killed", "cut or stopped", "partitions moved", "rows lost", "rows duplicated", "seconds"):
            table.add_column(column, justify="right")
        for row in result["seeds"]:
            names = ("seed", "kills", "disturbed", "moved", "lost", "duplicated", "took_s")
            table.add_row(*(str(row.get(name, 0)) for name in names))
        Console().print(table)
    sys.exit(1 if result["lost"] or result["duplicated"] else 0)


def repeating(
    seed: int, nodes: int, strategy: str, trace: Path | None = None, arrivals: Path | None = None, *, faults: str = "kill"
) -> str:
    """The command that repeats a seed.

    >>> repeating(7, 4, "eager", trace=Path("my failures.csv"))
    "resurge chaos --seed 7 --nodes 4 --strategy eager --trace 'my failures.csv'"
    """
    words = ["resurge", "chaos", "--seed", str(seed), "--nodes", str(nodes), "--strategy", strategy]
    for option, path in (("--trace", trace), ("--arrivals", arrivals)):
        words += [option, str(path)] if path is not None else []
    words += ["--faults", faults] if faults != "kill" else []
    return shlex.join(words)
