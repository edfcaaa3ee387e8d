"""resurge study correlated-failure: the papers' main experiment, on a real cluster or simulated."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from resurge.benchmarks.results import keep
from resurge.cli.progress_line import progress_line
from resurge.errors import ClusterError
from resurge.telemetry.events import Event

OVERHEAD = "overhead"
FEW_NODES = 100
WIDTH = 100
FIGURES_HELP = (
    "Separated by commas: strategies, places, kills, turns, overload, overhead; or all. Unless told: strategies; or, where it "
    "takes seconds (simulated, up to 100 nodes), all."
)


def correlated_failure(  # noqa: PLR0913, PLR0917 (one parameter per option)
    nodes: Annotated[int, typer.Option(min=2, help="Nodes of the cluster.")] = 10,
    kill: Annotated[int, typer.Option(min=1, help="Nodes that die.")] = 8,
    out: Annotated[Path, typer.Option(help="Where CSV, plots and summary go.")] = Path("out/correlated-failure"),
    simulated: Annotated[bool, typer.Option("--simulated", help="In virtual time, with the same protocol and planner.")] = False,
    partitions: Annotated[int, typer.Option(min=15, help="Partitions, when simulated.")] = 15,
    strategies: Annotated[str, typer.Option(help="Separated by commas.")] = "incremental,blocking,eager,source-replay,best-case",
    figures: Annotated[str | None, typer.Option(help=FIGURES_HELP)] = None,
    gap: Annotated[float, typer.Option(min=0, help="Seconds between two kills; 0 kills at once.")] = 0.0,
    arrive_from: Annotated[float, typer.Option(min=0, help="First replacement starts so many seconds after the failure.")] = 10.0,
    arrive_to: Annotated[float, typer.Option(min=0, help="Last replacement, at the latest.")] = 80.0,
    arrivals: Annotated[
        Path | None, typer.Option(help="File of start-up times of real machines to draw from, scaled to --arrive-to.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same failure.")] = 5,
    result: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a result file too.")] = None,
) -> None:
    """Most nodes die at once, replacements come one by one: relative latency, available queries and outage per strategy."""
    from resurge.studies import correlated_failure as experiment
    from resurge.studies.correlated_failure_report import kept_figures, write_figure
    from resurge.studies.figures import STRATEGIES, Figures
    from resurge.studies.simulated_failure import simulated_study

    if kill > nodes:
        raise ClusterError(f"--kill is {kill}, but there are {nodes} nodes; expected at most that many")
    moments = experiment.arrivals(kill, seed, arrive_from, arrive_to, arrivals)
    defined = Figures(nodes, kill, moments, gap, chosen=_chosen("strategy", strategies, STRATEGIES)).figures()
    known = [*defined] if simulated else [*defined, OVERHEAD]
    wanted = figures or ("all" if simulated and nodes <= FEW_NODES else next(iter(defined)))
    drawn = _chosen("figure", ",".join(known) if wanted == "all" else wanted, [*defined, OVERHEAD])
    if simulated and OVERHEAD in drawn:
        raise ClusterError("the overhead figures are measured on Spark; leave out --simulated or the figure overhead")
    cases = {figure: defined[figure] for figure in drawn if figure != OVERHEAD}
    how = f"{kill} of {nodes} nodes die {'one after another' if gap else 'at once'}"
    heading = f"{how}, {'simulated' if simulated else 'on a real cluster'}"
    runs: dict[str, dict[str, Sequence[Event]]] = {}
    tables: dict[str, dict[str, Any]] = {}
    overhead: dict[str, Any] = {}
    with progress_line(Console(stderr=True), heading) as progress:
        study = experiment.FailureStudy(nodes, seed, moments)
        played = (
            simulated_study(cases, nodes, partitions, seed) if simulated else experiment.run_study(study, cases, out, progress)
        )
        for figure, case, events in played if cases else ():
            runs.setdefault(figure, {})[case] = events
            # After each case, so that a study which is stopped has shown what it knows.
            tables[figure] = write_figure(figure, runs[figure], out, heading, study.longest_s)
        if OVERHEAD in drawn:
            overhead = _overhead(out, progress)
    if result is not None:
        keep(kept_figures(tables, runs.get("strategies", {})) | ({"overhead": overhead} if overhead else {}), result)
    # Where nobody looks at a screen there is no width to keep to.
    wide = Console(width=max(WIDTH, Console().width))
    for figure, summary in tables.items():
        wide.print(_table(heading if figure == "strategies" else figure, summary))
    Console().print(f"written to {out.resolve()}", soft_wrap=True)
    left = [figure for figure in known if figure not in drawn]
    if figures is None and left:
        Console(stderr=True).print(f"not drawn: {', '.join(left)}; ask for them with --figures", soft_wrap=True)


def _overhead(out: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    from resurge.studies.overhead import measure
    from resurge.studies.overhead_report import write_overhead

    runs = {
        known.name: (known.checkpoint_interval, known.always_buffers, *logs) for known, logs in measure(out, progress).items()
    }
    table = Table(title="overhead")
    columns = ("checkpoint_interval", "always_buffers", "posts_per_s", "latency_p50_s", "latency_p99_s")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    found = write_overhead(runs, out)
    for row in found.values():
        table.add_row(*(str(row[column]) for column in columns))
    Console().print(table)
    return found


def _chosen(what: str, given: str, known: Sequence[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in given.split(","))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ClusterError(f"unknown {what} {unknown[0]!r}; expected some of {', '.join(known)}")
    return names


def _table(title: str, summary: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title=f"{title} (seconds)", box=None, pad_edge=False)
    # First and all queries back, all at their usual latency; seen, restored and caught up, apart.
    columns = ("first", "all", "normal", "area", "seen", "restore", "catch up", "behind")
    table.add_column("run", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for name, row in summary.items():
        times = [_s(row[key]) for key in ("first_back_s", "all_back_s", "all_available_s")]
        apart = [_s(row[key]) for key in ("detected_after_s", "restore_s", "catch_up_s")]
        table.add_row(name, *times, f"{row['outage_area']:.0f}", *apart, "yes" if row["falls_behind"] else "no")
    return table


def _s(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
