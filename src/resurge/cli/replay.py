"""resurge replay: decide again what a driver decided, from the log of its inputs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from resurge.coordinator.replay import Replayed

HELP = (
    "Decide again what a driver decided, from the log of its inputs: the same commands and states, or where they first differ.\n\n"
    "`resurge run` records what its driver is told (nodes that come and go, jobs that end, answers, requests) in a file beside "
    "the telemetry that ends in .inputs. Its decisions depend on nothing else. So a failure can be looked at on any machine, "
    "input by input, without Spark, sources or sinks.\n\n"
    """\b
Examples:
  resurge replay out/trending/telemetry.inputs
  resurge replay out/trending/telemetry.inputs --table
  resurge replay out/trending/telemetry.inputs --until 90s --step
"""
)


def command(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A log of inputs.")],
    until: Annotated[
        str | None,
        typer.Option(metavar="N|SECONDS", help="End after this input, or (with an s, such as 90s) so long after the log began."),
    ] = None,
    table: Annotated[
        bool, typer.Option("--table", help="Show what came, what was decided, and what is waited for afterwards.")
    ] = False,
    step: Annotated[bool, typer.Option("--step", help="Show everything of each input, and wait for Enter after it.")] = False,
) -> None:
    """Replay, show what is asked for, and say whether all was the same."""
    from rich.console import Console

    from resurge.coordinator.canonical import digest

    console = Console(highlight=False, soft_wrap=True)
    first_s, last, inputs = 0.0, None, 0
    for replayed in _replayed(log):
        first_s = replayed.at_s if last is None else first_s
        if until is not None and _is_after(until, replayed, first_s):
            break
        last, inputs = replayed, inputs + (replayed.event is not None)
        if step:
            _show(console, replayed, first_s)
        elif table and (replayed.commands or replayed.event is None):
            console.print(row(replayed, first_s), markup=False)
        if replayed.difference:
            raise SystemExit(f"resurge: input {replayed.number} of {log} is decided otherwise now: {replayed.difference}")
    if last is None:
        raise SystemExit(f"resurge: {log} has no inputs")
    from resurge.coordinator.decisions import why

    console.print(f"{inputs} inputs in {last.at_s - first_s:.1f} s: the same commands and states", markup=False)
    console.print(f"then: {why(last.state, last.at_s)} (state {digest(last.state):08x})", markup=False)


def _replayed(log: Path) -> "Iterator[Replayed]":
    from resurge.coordinator.input_log import entries
    from resurge.coordinator.replay import replayed
    from resurge.errors import StorageError

    try:
        content = log.read_bytes()
    except OSError as error:
        raise StorageError(
            f"cannot read {log}: {error.strerror or error}; expected a log of inputs (its name ends in .inputs)"
        ) from error
    return replayed(entries(content, str(log)))


def _is_after(until: str, replayed: "Replayed", first_s: float) -> bool:
    try:
        if until.endswith("s"):
            return replayed.at_s - first_s > float(until.removesuffix("s"))
        return replayed.number > int(until)
    except ValueError:
        raise typer.BadParameter(
            f"{until!r}; expected a number of inputs, or seconds such as 90s", param_hint="--until"
        ) from None


def row(replayed: "Replayed", first_s: float) -> str:
    """An input in one line: when, what came, what was decided, and why nothing more was."""
    from resurge.coordinator.decisions import decided, described, why

    came = described(replayed.event) if replayed.event is not None else "a state"
    return (
        f"{replayed.number:>6} {replayed.at_s - first_s:>9.3f} s  {came}  ->  {'; '.join(decided(replayed.commands)) or 'nothing'}"
        f"  [{why(replayed.state, replayed.at_s)}]"
    )


def _show(console: "Console", replayed: "Replayed", first_s: float) -> None:
    """Everything of an input; then wait, if there is somebody to wait for."""
    console.print(row(replayed, first_s), markup=False)
    if replayed.event is not None:
        console.print(f"       input: {replayed.event!r}", markup=False)
    for each in replayed.commands:
        console.print(f"     command: {each!r}", markup=False)
    if sys.stdin.isatty():
        console.input("")
