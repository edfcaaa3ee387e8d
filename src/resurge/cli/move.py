"""resurge move: key groups of an operator go to another node while the job runs."""

from typing import Annotated

import typer

from resurge.cli.asking import AsJson, Timeout, Url, asked, new_request
from resurge.errors import ProblemError

HELP = (
    "Move key groups of an operator to a node, while the job runs.\n\n"
    "State is shipped while epochs go on, and the key groups switch with one epoch (precopy); or they pause while all of it is "
    "shipped (direct). Or the target begins with its copy or the checkpoint and takes the epochs since, while the key groups "
    "pause (cpa) or while they go on (cpal). Nothing is lost or repeated, whatever fails on the way.\n\n"
    """\b
Examples:
  resurge move out/trending counts/0-3 --to node-2
  resurge move out/trending counts/1,5 --to node-2 --how direct
  resurge move out/trending counts --to node-2
"""
)


def command(
    url: Url,
    what: Annotated[str, typer.Argument(metavar="OPERATOR[/KEY_GROUPS]", help="Such as counts, counts/3 or counts/0-3,7.")],
    to: Annotated[str, typer.Option("--to", metavar="NODE", help="The node that they go to.")],
    how: Annotated[str, typer.Option("--how", metavar="WAY", help="precopy, direct, cpa or cpal.")] = "precopy",
    timeout: Timeout = 120.0,
    as_json: AsJson = False,
) -> None:
    """Ask the running driver and wait."""
    from resurge.model.names import NodeId
    from resurge.model.requests import Move

    operator, groups = parsed(what)
    asked(url, Move(new_request(), operator, NodeId(to), groups, how), timeout, as_json=as_json)


def parsed(what: str) -> tuple[str, list[int]]:
    """The operator and the key groups; none stands for all.

    >>> parsed("counts/0-2,7"), parsed("counts")
    (('counts', [0, 1, 2, 7]), ('counts', []))
    """
    operator, slash, listed = what.partition("/")
    found: set[int] = set()
    for piece in listed.split(",") if slash else ():
        first, dash, last = piece.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise ProblemError(
                f"{what!r} is not OPERATOR[/KEY_GROUPS]: expected numbers and ranges such as 3 or 0-3,7, got {piece!r}"
            )
        found.update(range(int(first), int(last if dash else first) + 1))
    if not operator:
        raise ProblemError(f"{what!r} names no operator; expected OPERATOR[/KEY_GROUPS], such as counts/0-3")
    return operator, sorted(found)
