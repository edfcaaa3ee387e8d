"""resurge study recovery-plans: what each algorithm recovers, as in the paper's figure 16."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from resurge.errors import ProblemError

HELP = (
    "Compare the recovery-schedule algorithms on generated topologies of 18 queries.\n\n"
    "Writes recovery_plans.csv, recovery_plans.png and summary.md. The same seed gives the same results.\n\n"
    """\b
Example:
  resurge study recovery-plans --out studies/recovery-plans --seed 7
"""
)


def command(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write; created if absent.")],
    seed: Annotated[int, typer.Option(metavar="N", help="Which topologies are generated.")] = 0,
    topologies: Annotated[int, typer.Option(metavar="N", min=1, help="Topologies per setting.")] = 100,
) -> None:
    """Sweep with a progress bar, then write."""
    from resurge.cli.plan_recovery import prefer_one_thread

    prefer_one_thread()
    from rich.console import Console
    from rich.progress import track

    from resurge.studies.recovery_plans import QUERIES, SETTINGS, Result, sweep
    from resurge.studies.recovery_plans_report import write_study

    _make_directory(out)
    results: list[Result] = []
    for some in track(
        sweep(seed, topologies),
        total=len(SETTINGS) * topologies,
        description="topologies",
        console=Console(file=sys.stderr),
    ):
        results.extend(some)
    command_line = f"resurge study recovery-plans --seed {seed} --topologies {topologies}"
    heading = f"{topologies} generated topologies of {QUERIES} queries per setting (`{command_line}`)."
    write_study(results, out, heading)
    print(f"wrote {out / 'summary.md'}")


def _make_directory(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProblemError(f"--out must be a directory that can be written, got {str(out)!r}: {error.strerror}") from None
