"""resurge drain: everything leaves a node while the job runs, so that the node may go."""

from typing import Annotated

import typer

from resurge.cli.asking import AsJson, Timeout, Url, asked, new_request

HELP = (
    "Move everything away from a node, while the job runs; then it may go.\n\n"
    "Nothing is put on the node again as long as this driver runs. A drain that does not fit into the other nodes is "
    "refused.\n\n"
    """\b
Examples:
  resurge drain out/trending node-2
"""
)


def command(
    url: Url,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node that is to be empty.")],
    timeout: Timeout = 120.0,
    as_json: AsJson = False,
) -> None:
    """Ask the running driver and wait."""
    from resurge.model.names import NodeId
    from resurge.model.requests import Drain

    asked(url, Drain(new_request(), NodeId(node)), timeout, as_json=as_json)
