"""resurge study checkpoint-placement: whether copies lie where key groups must move, as in ELASTIC's figures 7 to 9."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from resurge.studies.swinging_load import Swung

HELP = (
    "Compare where copies of checkpoints lie when load grows: baseline, even and correlated, simulated.\n\n"
    "Writes checkpoint_placement.csv, checkpoint_placement.png and summary.md. The same seeds give the same results. With --real, "
    "the job whose load swings from one operator to the other also runs on an embedded cluster of three nodes, for about five "
    "minutes.\n\n"
    """\b
Examples:
  resurge study checkpoint-placement --out studies/checkpoint-placement
  resurge study checkpoint-placement --real --result checkpoint-placement.json
"""
)


def command(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write; created if absent.")] = Path(
        "out/checkpoint-placement"
    ),
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Runs per number of key groups, each with other loads.")] = 20,
    real: Annotated[bool, typer.Option("--real", help="Also run the job whose load swings on a real cluster.")] = False,
    result: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a result file.")] = None,
) -> None:
    """Sweep with a progress bar, then write."""
    from resurge.cli.plan_recovery import prefer_one_thread

    prefer_one_thread()
    from rich.console import Console
    from rich.progress import track

    from resurge.studies.checkpoint_placement import COMPARED, KEY_GROUPS, sweep, swinging
    from resurge.studies.checkpoint_placement_report import Studied, results_of, write_study

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"{out}: {error.strerror}; expected a folder that can be written", param_hint="--out") from None
    total = seeds * len(KEY_GROUPS) * len(COMPARED)
    results = list(track(sweep(seeds), total=total, description="runs", console=Console(file=sys.stderr)))
    heading = f"{seeds} simulated runs of the paper's four-operator job per setting (`resurge study checkpoint-placement --seeds {seeds}`)."
    studied = Studied(results, swinging(), _swung() if real else [])
    write_study(studied, out, heading)
    if result is not None:
        from resurge.benchmarks.results import keep

        keep(results_of(studied), result)
    print(f"wrote {out / 'summary.md'}")


def _swung() -> "list[Swung]":
    from rich.console import Console

    from resurge.cli.progress_line import progress_line
    from resurge.studies.swinging_load import COMPARED, run_swings

    with progress_line(Console(stderr=True), "starting a cluster") as progress:
        return run_swings(COMPARED, progress)
