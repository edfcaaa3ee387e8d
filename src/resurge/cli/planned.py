"""What the subcommands of `resurge plan` share: read the problem, plan, time it, print the plan."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import typer

from resurge.errors import ProblemError

ProblemFile = Annotated[Path, typer.Option("--problem", metavar="FILE", help="JSON problem file, gzipped or not.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]


class Planned(Protocol):
    """What every plan has."""

    @property
    def optimal(self) -> bool | None:
        """Proven, not proven, or None for a heuristic."""

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""


Problem = TypeVar("Problem")
Plan = TypeVar("Plan", bound=Planned)


def print_plan(
    problem_file: Path,
    algorithm: str,
    as_json: bool,
    *,
    algorithms: Mapping[str, Callable[[Problem], Plan]],
    read: Callable[[Any], Problem],
    told: Callable[[Problem, Plan], Iterable[str]],
) -> None:
    """Read the problem, plan with the named algorithm, and print the plan as JSON or as `told` tells it to people."""
    from resurge.planning.problem_files import load

    require_algorithm(algorithm, algorithms)
    problem = read(load(problem_file))
    started = time.perf_counter()
    plan = algorithms[algorithm](problem)
    elapsed_ms = round((time.perf_counter() - started) * 1000, 3)
    if as_json:
        print_json(plan.to_json(), elapsed_ms)
        return
    print(*told(problem, plan), _verdict(plan.optimal, elapsed_ms), sep="\n")


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


def _verdict(optimal: bool | None, elapsed_ms: float) -> str:
    """The last line for people."""
    proven = {True: "proven optimal", False: "not proven optimal", None: "a heuristic, no proof"}[optimal]
    return f"{proven}; planned in {elapsed_ms:g} ms"
