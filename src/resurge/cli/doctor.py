"""resurge doctor: whether everything is there that a job needs, and what to do where it is not."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from resurge.doctor.findings import Finding

HELP = (
    "Check Java, Python, Spark, versions on executors, ports, the store, clocks and space; say what to do about each.\n\n"
    "Starts a small Spark session on --master, unless --no-spark. Writes and deletes one small file at --checkpoint. Exits with 1 "
    "if something is in the way of a job.\n\n"
    """\b
Examples:
  resurge doctor
  resurge doctor --master spark://host:7077 --checkpoint s3://bucket/jobs
  resurge doctor --no-spark --json
"""
)


def command(
    master: Annotated[str, typer.Option(metavar="URL", help="Spark master whose executors are looked at.")] = "local[*]",
    checkpoint: Annotated[str | None, typer.Option(metavar="URL", help="Where jobs are to be kept; tried out.")] = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Do not start Spark.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look, show, and fail if something is in the way."""
    import os

    from rich.console import Console

    from resurge.doctor.executors import executor_findings
    from resurge.doctor.findings import Verdict
    from resurge.doctor.machine import machine_findings
    from resurge.doctor.stores import store_findings

    console = Console()
    found: list[Finding] = []
    groups = [machine_findings(os.environ)]
    if checkpoint is not None:
        groups.append(store_findings(checkpoint))
    if not no_spark:
        groups.append(executor_findings(master))
    for finding in (finding for group in groups for finding in group):
        found.append(finding)
        if not as_json:
            show(finding, console)
    if as_json:
        import msgspec

        print(msgspec.json.encode(found).decode())
    problems = sum(finding.verdict is Verdict.PROBLEM for finding in found)
    if not as_json:
        words = "everything that a job needs is there" if not problems else f"{problems} in the way of a job"
        console.print(words, style="green" if not problems else "red")
    if problems:
        raise typer.Exit(1)


def show(finding: "Finding", console: object) -> None:
    """One line for what was found, one for what to do."""
    from rich.console import Console
    from rich.text import Text

    from resurge.doctor.findings import Verdict

    assert isinstance(console, Console)
    colours = {Verdict.FINE: "green", Verdict.NOTE: "yellow", Verdict.PROBLEM: "red"}
    line = Text.assemble((f"{finding.verdict.value:8}", colours[finding.verdict]), (f"{finding.check}: ", "bold"), finding.found)
    console.print(line, soft_wrap=True)
    if finding.advice:
        console.print(Text(f"        {finding.advice}", style="dim"), soft_wrap=True)
