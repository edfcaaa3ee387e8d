"""resurge plan backups: which tasks keep backups, so that every task recovers within its bound."""

from typing import Annotated

import typer

from resurge.cli.planned import AsJson, ProblemFile, print_json, require_algorithm, timed_plan, verdict

HELP = "Choose the tasks that keep backups, so that every task recovers within its bound."
ALGORITHM_HELP = "auto (recognises the shape), line, tree, dag, share-based, exhaustive or exact."


def command(
    problem_file: ProblemFile,
    algorithm: Annotated[str, typer.Option("--algorithm", metavar="NAME", help=ALGORITHM_HELP)] = "auto",
    as_json: AsJson = False,
) -> None:
    """Read the problem, plan, and print the plan."""
    from resurge.planning.backup_sites import ALGORITHMS, BackupProblem
    from resurge.planning.problem_files import load

    require_algorithm(algorithm, ALGORITHMS)
    problem = BackupProblem.from_json(load(problem_file))
    plan, elapsed_ms = timed_plan(ALGORITHMS, algorithm, problem)
    if as_json:
        print_json(plan.to_json(), elapsed_ms)
        return
    print(f"{plan.algorithm}: {len(plan.backups)} backups among {len(problem.tasks)} tasks, cost {plan.cost:g}")
    print(f"backups: {', '.join(plan.backups) or 'none needed'}")
    print(f"worst recovery latency: {plan.worst:g}")
    print(verdict(plan.optimal, elapsed_ms))
