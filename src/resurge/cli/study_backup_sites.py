"""resurge study backup-sites: backups against the recovery bound, as in BACKUPS' figures 7 and 8 and table III."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from resurge.errors import ProblemError

HELP = "Repeat BACKUPS' figures 7 and 8 and table III: backups needed for a recovery bound, and the time to plan them."


def command(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where CSV, plots and summary go.")],
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the tree and of the times 1 to 10.")] = 1,
    draws: Annotated[int, typer.Option("--draws", metavar="N", min=1, help="Draws of the times 1 to 10.")] = 3,
) -> None:
    """Plan every case with every algorithm, then write measurements.csv, the plots and summary.md."""
    from rich.console import Console
    from rich.progress import track

    from resurge.studies.backup_sites import ALGORITHMS, measured, write_study
    from resurge.studies.backup_topologies import cases

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProblemError(f"--out {str(out)!r} cannot be made: {error.strerror}; give a directory to write to") from None
    chosen = list(cases(seed, draws))
    shown = track(measured(chosen), total=len(chosen) * len(ALGORITHMS), description="planning", console=Console(file=sys.stderr))
    write_study(list(shown), out, seed=seed, draws=draws)
    print(f"wrote measurements.csv, figure_7.png, figure_8.png, table_3.png and summary.md to {out}")
