"""resurge balance: few and cheap key groups move so that load is even, while the job runs."""

from typing import Annotated

import typer

from resurge.cli.asking import AsJson, Timeout, Url, asked, new_request

HELP = (
    "Move few and cheap key groups so that load is even, while the job runs.\n\n"
    "The plan is that of `resurge plan moves`, with the costs that the job measured; no node is filled above its capacity.\n\n"
    """\b
Examples:
  resurge balance out/trending --dry-run
  resurge balance out/trending
"""
)


def command(
    url: Url,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would move.")] = False,
    timeout: Timeout = 120.0,
    as_json: AsJson = False,
) -> None:
    """Ask the running driver and wait."""
    from resurge.model.requests import Balance

    asked(url, Balance(new_request(), is_dry_run=dry_run), timeout, as_json=as_json)
