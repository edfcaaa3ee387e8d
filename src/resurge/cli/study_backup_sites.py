"""resurge study backup-sites: backups against the recovery bound, as in BACKUPS' figures 7 and 8 and table III."""

import csv
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from resurge.errors import ProblemError

if TYPE_CHECKING:
    from resurge.studies.backup_sites_report import Measurement
    from resurge.studies.backup_topologies import StudyCase

HELP = "Repeat BACKUPS' figures 7 and 8 and table III: backups needed for a recovery bound, and the time to plan them."
ALGORITHMS = ("auto", "dag", "share-based", "exact")


def command(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where CSV, plots and summary go.")],
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the tree and of the times 1 to 10.")] = 1,
    draws: Annotated[int, typer.Option("--draws", metavar="N", min=1, help="Draws of the times 1 to 10.")] = 3,
) -> None:
    """Plan every case with every algorithm, then write measurements.csv, the plots and summary.md."""
    from resurge.studies import backup_sites_report as report
    from resurge.studies.backup_topologies import cases

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProblemError(f"--out {str(out)!r} cannot be made: {error.strerror}; give a directory to write to") from None
    measurements = _measured(list(cases(seed, draws)))
    _write_csv(out / "measurements.csv", measurements)
    report.plot_backups(measurements, ("lines", "tree"), out / "figure_7.png")
    report.plot_backups(measurements, ("traffic-signal", "sentiment-560", "sentiment-1050"), out / "figure_8.png")
    report.plot_times(measurements, out / "table_3.png")
    (out / "summary.md").write_text(report.summary(measurements, seed=seed, draws=draws))
    print(f"wrote measurements.csv, figure_7.png, figure_8.png, table_3.png and summary.md to {out}")


def _measured(study_cases: "list[StudyCase]") -> "list[Measurement]":
    from rich.console import Console
    from rich.progress import Progress

    from resurge.planning.backup_sites import ALGORITHMS as PLANNERS

    PLANNERS["exact"](study_cases[0].problem)  # Loads the solver, whose start must not count as planning time.
    measurements = []
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("planning", total=len(study_cases) * len(ALGORITHMS))
        for case in study_cases:
            for algorithm in ALGORITHMS:
                measurements.append(_measure(case, algorithm))
                progress.advance(bar)
    return measurements


def _measure(case: "StudyCase", algorithm: str) -> "Measurement":
    from resurge.planning.backup_sites import ALGORITHMS as PLANNERS
    from resurge.studies.backup_sites_report import Measurement

    started = time.perf_counter()
    plan = PLANNERS[algorithm](case.problem)
    elapsed_ms = (time.perf_counter() - started) * 1000
    return Measurement(
        topology=case.topology,
        weights=case.weights,
        draw=case.draw,
        bound=float(case.problem.bound or 0),
        algorithm=algorithm,
        backups=len(plan.backups),
        elapsed_ms=round(elapsed_ms, 3),
        optimal=plan.optimal,
    )


def _write_csv(path: Path, measurements: "Iterable[Measurement]") -> None:
    rows = [measurement._asdict() for measurement in measurements]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
