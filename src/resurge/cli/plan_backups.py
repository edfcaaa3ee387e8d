"""resurge plan backups: which tasks keep backups, so that every task recovers within its bound."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from resurge.cli.planned import AsJson, ProblemFile, print_plan

if TYPE_CHECKING:
    from resurge.planning.backup_sites import BackupPlan, BackupProblem

HELP = "Choose the tasks that keep backups, so that every task recovers within its bound."
ALGORITHM_HELP = "auto (recognises the shape), line, tree, dag, share-based, exhaustive or exact."
Algorithm = Annotated[str, typer.Option("--algorithm", metavar="NAME", help=ALGORITHM_HELP)]


def command(problem_file: ProblemFile, algorithm: Algorithm = "auto", as_json: AsJson = False) -> None:
    """Read the problem, plan, and print the plan."""
    from resurge.planning.backup_sites import ALGORITHMS, BackupProblem

    print_plan(problem_file, algorithm, as_json, algorithms=ALGORITHMS, read=BackupProblem.from_json, told=_told)


def _told(problem: "BackupProblem", plan: "BackupPlan") -> Iterator[str]:
    yield f"{plan.algorithm}: {len(plan.backups)} backups among {len(problem.tasks)} tasks, cost {plan.cost:g}"
    yield f"backups: {', '.join(plan.backups) or 'none needed'}"
    yield f"worst recovery latency: {plan.worst:g}"
