"""resurge study migration: what moving state costs, as in the paper's figures 5 and 6."""

from pathlib import Path
from typing import Annotated

import typer

HELP = (
    "Move a key group of a running job by every way, over sizes of state and numbers of rows to replay.\n\n"
    "The paper's job on real flights, on an embedded cluster of three nodes, and simulated beside it. Writes migration.csv, "
    "migration.png and summary.md. Takes about twelve minutes.\n\n"
    """\b
Example:
  resurge study migration --out studies/migration
"""
)


def command(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write; created if absent.")] = Path("out/migration"),
    rows: Annotated[str | None, typer.Option(metavar="N,N", help="Rows of state, separated by commas.")] = None,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="How often each way is taken; medians are told.")] = 3,
    result: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a result file.")] = None,
) -> None:
    """Run, then write."""
    from rich.console import Console

    from resurge.benchmarks.results import keep
    from resurge.cli.progress_line import progress_line
    from resurge.studies.migration import KEY_GROUPS, STATE_ROWS, Plan, run_study
    from resurge.studies.migration_report import SUMMARY_NAME, medians, results, write_study
    from resurge.studies.simulated_migration import simulated_like

    sizes = STATE_ROWS if rows is None else _numbers(rows)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"{out}: {error.strerror}; expected a folder that can be written", param_hint="--out") from None
    with progress_line(Console(stderr=True), "starting a cluster") as progress:
        moves = run_study(sizes, Plan(repeats=repeats), progress)
        progress("simulating")
        simulated = simulated_like(medians(moves))
    heading = (
        f"One of {KEY_GROUPS} key groups of `events`, which keeps every delay, goes to another of three nodes while rows arrive; "
        f"medians of {repeats} moves for each line."
    )
    write_study(moves, simulated, out, heading)
    if result is not None:
        keep(results(moves, simulated), result)
    print(f"wrote {out / SUMMARY_NAME}")


def _numbers(text: str) -> list[int]:
    try:
        found = [int(item) for item in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 10_000:
        raise typer.BadParameter(
            f"{text!r}; expected numbers of rows of at least 10000, such as 200000,1000000", param_hint="--rows"
        )
    return sorted(found)
