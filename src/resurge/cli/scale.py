"""resurge scale: another number of nodes while the job runs, within the bounds that it was started with."""

from typing import Annotated

import typer

from resurge.cli.asking import AsJson, Timeout, Url, asked, new_request

HELP = (
    "Have another number of nodes, while the job runs.\n\n"
    "The job must have been started with --scale MIN..MAX. Nodes that are missing are asked for; nodes that are too many are "
    "drained one by one and given back. Later the job goes on choosing by itself.\n\n"
    """\b
Examples:
  resurge scale out/trending 6
"""
)


def command(
    url: Url,
    nodes: Annotated[int, typer.Argument(metavar="NODES", min=1, help="How many nodes there are to be.")],
    timeout: Timeout = 120.0,
    as_json: AsJson = False,
) -> None:
    """Ask the running driver."""
    from resurge.model.requests import Scale

    asked(url, Scale(new_request(), nodes), timeout, as_json=as_json)
