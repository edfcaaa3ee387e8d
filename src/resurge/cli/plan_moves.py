"""resurge plan moves: which key groups move to which nodes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from resurge.cli.plan_recovery import prefer_one_thread
from resurge.cli.planned import AsJson, ProblemFile, print_plan

if TYPE_CHECKING:
    from resurge.planning.key_group_moves import MovePlan, MoveProblem

HELP = "Choose which key groups move where, so that load is even and nodes that go are empty."
ALGORITHM_HELP = "greedy, balanced or exact."
Algorithm = Annotated[str, typer.Option("--algorithm", metavar="NAME", help=ALGORITHM_HELP)]


def command(problem_file: ProblemFile, algorithm: Algorithm = "balanced", as_json: AsJson = False) -> None:
    """Read the problem, plan, and print the plan."""
    prefer_one_thread()
    from resurge.planning.key_group_moves import ALGORITHMS, MoveProblem

    print_plan(problem_file, algorithm, as_json, algorithms=ALGORITHMS, read=MoveProblem.from_json, told=_told)


def _told(problem: "MoveProblem", plan: "MovePlan") -> Iterator[str]:
    for move in plan.moves:
        shipped = "a copy is there" if move.is_assisted else f"{move.shipped_bytes:,} bytes"
        yield f"{move.partition}: {move.source} -> {move.target}, {shipped}"
    yield f"{plan.algorithm}: {len(plan.moves)} of {len(problem.partitions)} partitions move, {plan.shipped_bytes:,} bytes"
    yield f"score {plan.score:.6g} (now {plan.score_before:.6g}), imbalance {plan.imbalance:.4g} (now {plan.imbalance_before:.4g})"
