"""The backup-sites study: every topology planned by every algorithm, timed, and written down."""

import csv
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from resurge.planning.backup_sites import ALGORITHMS as PLANNERS
from resurge.studies import backup_sites_report as report
from resurge.studies.backup_sites_report import Measurement
from resurge.studies.backup_topologies import StudyCase

ALGORITHMS = ("auto", "dag", "share-based", "exact")


def measured(cases: Sequence[StudyCase]) -> Iterator[Measurement]:
    """Plan each case with each algorithm."""
    PLANNERS["exact"](cases[0].problem)  # Loads the solver, whose start must not count as planning time.
    for case in cases:
        for algorithm in ALGORITHMS:
            yield _measure(case, algorithm)


def _measure(case: StudyCase, algorithm: str) -> Measurement:
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


def write_study(measurements: Sequence[Measurement], out: Path, *, seed: int, draws: int) -> None:
    """Write measurements.csv, the figures and summary.md into a folder."""
    _write_csv(out / "measurements.csv", measurements)
    report.plot_backups(measurements, ("lines", "tree"), out / "figure_7.png")
    report.plot_backups(measurements, ("traffic-signal", "sentiment-560", "sentiment-1050"), out / "figure_8.png")
    report.plot_times(measurements, out / "table_3.png")
    (out / "summary.md").write_text(report.summary(measurements, seed=seed, draws=draws))


def _write_csv(path: Path, measurements: Sequence[Measurement]) -> None:
    rows = [measurement._asdict() for measurement in measurements]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
