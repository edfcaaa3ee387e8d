"""resurge plan checkpoints: on which nodes the copies of checkpoints go."""

from typing import Annotated

import typer

from resurge.cli.plan_recovery import prefer_one_thread
from resurge.cli.planned import AsJson, ProblemFile, print_json, require_algorithm, timed_plan, verdict

HELP = "Choose the nodes for checkpoint copies, where they help most when load shifts."
ALGORITHM_HELP = "baseline, even, correlated or exact."


def command(
    problem_file: ProblemFile,
    algorithm: Annotated[str, typer.Option("--algorithm", metavar="NAME", help=ALGORITHM_HELP)] = "correlated",
    as_json: AsJson = False,
) -> None:
    """Read the problem, plan, and print the plan."""
    prefer_one_thread()
    from resurge.planning.checkpoint_placement import ALGORITHMS, CheckpointProblem
    from resurge.planning.problem_files import load

    require_algorithm(algorithm, ALGORITHMS)
    problem = CheckpointProblem.from_json(load(problem_file))
    plan, elapsed_ms = timed_plan(ALGORITHMS, algorithm, problem)
    if as_json:
        print_json(plan.to_json(), elapsed_ms)
        return
    for group, nodes in plan.placement.items():
        print(f"{group}: {', '.join(nodes) or 'no copies'}")
    changed = sum(set(plan.placement[group]) != set(nodes) for group, nodes in problem.current.items())
    moves = f", {changed} of {len(problem.current)} placed key groups changed" if problem.current else ""
    print(f"{plan.algorithm}: score {plan.score:.6g}{moves}")
    print(verdict(plan.optimal, elapsed_ms))
