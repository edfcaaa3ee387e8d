"""resurge plan recovery: which failed queries come back first."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from resurge.cli.planned import print_json, require_algorithm
from resurge.errors import ProblemError

if TYPE_CHECKING:
    from resurge.planning.recovery_schedule import RecoveryPlan, RecoveryProblem

HELP = (
    "Choose which failed queries to recover with the capacity there is.\n\n"
    "The problem is JSON, gzipped or not: capacity, partitions with costs, queries with priorities and partitions, "
    "and optionally the free capacity of nodes.\n\n"
    """\b
Examples:
  resurge plan recovery --problem failure.json
  resurge plan recovery --problem failure.json.gz --algorithm exact --json
  resurge plan recovery --problem failure.json --deadline-ms 10000
"""
)

LONGEST_DEADLINE_MS = 24 * 3600 * 1000.0


def command(
    problem: Annotated[Path, typer.Option(metavar="FILE", help="The problem file.")],
    algorithm: Annotated[
        str,
        typer.Option(help="anytime, best-density, greedy, dynamic-programming, operator-centric or exact.", metavar="NAME"),
    ] = "anytime",
    deadline_ms: Annotated[
        float | None,
        typer.Option(metavar="N", help="Time for anytime (1000 unless given) and exact (60000), from reading the file on."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Read, plan, print."""
    prefer_one_thread()
    from resurge.planning import problem_files
    from resurge.planning.recovery_schedule import RecoveryProblem

    _check_options(algorithm, deadline_ms)
    started_s = time.perf_counter()
    given = RecoveryProblem.from_json(problem_files.load(problem))
    plan = _plan(given, algorithm, deadline_ms, started_s)
    elapsed_ms = round((time.perf_counter() - started_s) * 1000, 3)
    if as_json:
        print_json(plan.to_json(), elapsed_ms)
    else:
        _show(given, plan, elapsed_ms)


def prefer_one_thread() -> None:
    """Keep numpy's matrix products on one core, where it has not been imported yet.

    The matrices are small: a second thread gains little on a free machine, and on a busy one it costs many times the
    work, waiting.
    """
    if "numpy" not in sys.modules:
        for library in ("OPENBLAS", "MKL", "OMP"):
            os.environ.setdefault(f"{library}_NUM_THREADS", "1")


def _check_options(algorithm: str, deadline_ms: float | None) -> None:
    from resurge.planning.recovery_schedule import ALGORITHMS

    require_algorithm(algorithm, ALGORITHMS)
    if deadline_ms is not None and not 0 <= deadline_ms <= LONGEST_DEADLINE_MS:
        raise ProblemError(f"--deadline-ms must be between 0 and {LONGEST_DEADLINE_MS:.0f}, got {deadline_ms}")


def _plan(problem: "RecoveryProblem", algorithm: str, deadline_ms: float | None, started_s: float) -> "RecoveryPlan":
    from resurge.planning.recovery_schedule import DEADLINES_MS, plan_by

    if algorithm not in DEADLINES_MS:
        return plan_by(algorithm, problem)
    spent_ms = (time.perf_counter() - started_s) * 1000
    allowed_ms = DEADLINES_MS[algorithm] if deadline_ms is None else deadline_ms
    return plan_by(algorithm, problem, max(0.0, allowed_ms - spent_ms))


def _show(problem: "RecoveryProblem", plan: "RecoveryPlan", elapsed_ms: float) -> None:
    proof = {True: ", proven optimal", False: ", not proven optimal", None: ""}[plan.optimal]
    failed_priority = problem.priority_of(problem.query_names)
    print(f"{plan.algorithm}: priority {plan.priority:g} of {failed_priority:g}{proof}, {elapsed_ms:.0f} ms")
    print(f"cost {plan.cost:g} of {problem.usable_capacity:g}: {len(plan.partitions)} of {len(problem.partitions)} partitions")
    print(f"{len(plan.queries)} of {len(problem.queries)} queries: {' '.join(plan.queries)}")
    for node in problem.nodes or {}:
        here = [partition for partition, place in plan.placement.items() if place == node]
        print(f"on {node}: {' '.join(here)}")
