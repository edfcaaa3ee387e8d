"""What `resurge plan backups` and `resurge plan checkpoints` share: choose the algorithm, time it, print JSON."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from resurge.errors import ProblemError

Problem = TypeVar("Problem")
Plan = TypeVar("Plan")

ProblemFile = Annotated[Path, typer.Option("--problem", metavar="FILE", help="JSON problem file, gzipped or not.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]


def timed_plan(algorithms: Mapping[str, Callable[[Problem], Plan]], algorithm: str, problem: Problem) -> tuple[Plan, float]:
    """Plan with the named algorithm; return the plan and how long it took, in milliseconds."""
    started = time.perf_counter()
    plan = algorithms[algorithm](problem)
    return plan, round((time.perf_counter() - started) * 1000, 3)


def require_algorithm(algorithm: str, algorithms: Mapping[str, object]) -> None:
    """Refuse the name of an algorithm that there is not, before anything else is done."""
    from resurge.planning.problem_files import nearest

    if algorithm not in algorithms:
        raise ProblemError(
            f"--algorithm must be one of {', '.join(algorithms)}, got {algorithm!r}{nearest(algorithm, algorithms)}"
        )


def print_json(document: Mapping[str, Any], elapsed_ms: float) -> None:
    """Print a plan as one line of JSON, the elapsed time before the verdict on optimality."""
    without_verdict = {name: value for name, value in document.items() if name != "optimal"}
    print(json.dumps({**without_verdict, "elapsed_ms": elapsed_ms, "optimal": document["optimal"]}))


def verdict(optimal: bool | None, elapsed_ms: float) -> str:
    """The last line for people."""
    proven = {True: "proven optimal", False: "not proven optimal", None: "a heuristic, no proof"}[optimal]
    return f"{proven}; planned in {elapsed_ms:g} ms"
