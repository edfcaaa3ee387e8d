"""resurge study correlated-failure: the papers' main experiment, on a real cluster or simulated."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from resurge.errors import ClusterError


def correlated_failure(  # noqa: PLR0913, PLR0917 (one parameter per option)
    nodes: Annotated[int, typer.Option(min=2, help="Nodes of the cluster.")] = 10,
    kill: Annotated[int, typer.Option(min=1, help="Nodes that die at once.")] = 8,
    out: Annotated[Path, typer.Option(help="Where CSV, plots and summary go.")] = Path("out/correlated-failure"),
    simulated: Annotated[bool, typer.Option("--simulated", help="In virtual time, with the same protocol and planner.")] = False,
    partitions: Annotated[int, typer.Option(min=15, help="Partitions, when simulated.")] = 150,
    strategies: Annotated[str, typer.Option(help="Separated by commas.")] = "incremental,blocking,eager,source-replay,best-case",
    arrive_from: Annotated[float, typer.Option(min=0, help="First replacement, seconds after the failure.")] = 15.0,
    arrive_to: Annotated[float, typer.Option(min=0, help="Last replacement, at the latest.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Same seed, same failure.")] = 1,
) -> None:
    """Most nodes die at once, replacements come one by one: relative latency, available queries and outage per strategy."""
    from resurge.experiments import correlated_failure as experiment
    from resurge.report.correlated_failure import write_study

    if kill > nodes:
        raise ClusterError(f"--kill is {kill}, but there are {nodes} nodes; expected at most that many")
    chosen = tuple(name.strip() for name in strategies.split(","))
    unknown = [name for name in chosen if name not in experiment.STRATEGIES]
    if unknown:
        raise ClusterError(f"unknown strategy {unknown[0]!r}; expected some of {', '.join(experiment.STRATEGIES)}")
    console = Console(stderr=True)
    moments = experiment.arrivals(kill, seed, arrive_from, arrive_to)
    with console.status("beginning") as status:
        if simulated:
            from resurge.simulator.study import simulated_study

            runs = simulated_study(
                nodes=nodes, kill=kill, partitions=partitions, strategies=chosen, seed=seed, arrivals_s=moments
            )
        else:
            study = experiment.FailureStudy(nodes, kill, moments, seed, chosen=chosen)
            runs = experiment.run_study(study, out, status.update)
    kind = "simulated" if simulated else "on a real cluster"
    summary = write_study(runs, out, f"{kill} of {nodes} nodes die at once, {kind}")
    table = Table(title=f"{kill} of {nodes} nodes die at once, {kind}")
    for column in ("strategy", "first query back", "all back", "all at normal latency", "outage area", "falls behind"):
        table.add_column(column, justify="left" if column == "strategy" else "right")
    for strategy, row in summary.items():
        times = (_s(row[name]) for name in ("first_back_s", "all_back_s", "all_available_s"))
        table.add_row(strategy, *times, f"{row['outage_area']:.0f}", str(row["falls_behind"]))
    Console().print(table)
    Console().print(f"written to {out.resolve()}", soft_wrap=True)


def _s(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
