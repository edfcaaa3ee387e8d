"""resurge plan checkpoints: on which nodes the copies of checkpoints go."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from resurge.cli.plan_recovery import prefer_one_thread
from resurge.cli.planned import AsJson, ProblemFile, print_plan

if TYPE_CHECKING:
    from resurge.planning.checkpoint_placement import CheckpointPlan, CheckpointProblem

HELP = "Choose the nodes for checkpoint copies, where they help most when load shifts."
ALGORITHM_HELP = "baseline, even, correlated or exact."
Algorithm = Annotated[str, typer.Option("--algorithm", metavar="NAME", help=ALGORITHM_HELP)]


def command(problem_file: ProblemFile, algorithm: Algorithm = "correlated", as_json: AsJson = False) -> None:
    """Read the problem, plan, and print the plan."""
    prefer_one_thread()
    from resurge.planning.checkpoint_placement import ALGORITHMS, CheckpointProblem

    print_plan(problem_file, algorithm, as_json, algorithms=ALGORITHMS, read=CheckpointProblem.from_json, told=_told)


def _told(problem: "CheckpointProblem", plan: "CheckpointPlan") -> Iterator[str]:
    for group, nodes in plan.placement.items():
        yield f"{group}: {', '.join(nodes) or 'no copies'}"
    changed = sum(set(plan.placement[group]) != set(nodes) for group, nodes in problem.current.items())
    moves = f", {changed} of {len(problem.current)} placed key groups changed" if problem.current else ""
    yield f"{plan.algorithm}: score {plan.score:.6g}{moves}"
