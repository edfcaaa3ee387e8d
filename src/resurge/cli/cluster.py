"""resurge cluster ...: a real Spark cluster on this machine that outlives the command, with nodes to kill and to add."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "A real Spark cluster on this machine, to try failures on.\n\n"
        "Spark's own master and workers, one process group per node, reachable from this machine only. It runs until it is "
        "stopped.\n\n"
        """\b
Examples:
  resurge cluster start --nodes 4 --domains r1,r1,r2,r2
  resurge run trending.py --master spark://127.0.0.1:PORT
  resurge cluster kill node-3 node-4
  resurge cluster cut node-2     (started with --hosts)
  resurge cluster add --domain r2
  resurge cluster stop
"""
    ),
)

Folder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where the cluster is kept; resurge/cluster in the user's cache folder if not given."),
]


@app.command()
def start(
    nodes: Annotated[int, typer.Option(min=0, metavar="N", help="How many nodes.")] = 2,
    cpu_share: Annotated[
        str, typer.Option(metavar="S", help="How fast nodes are, against a whole core: one number, or one per node: 1,1,0.5.")
    ] = "1",
    domains: Annotated[
        str | None, typer.Option(metavar="R,R,...", help="Failure domain of each node; each is one by itself if not given.")
    ] = None,
    cores: Annotated[int, typer.Option(min=1, metavar="N", help="Cores of each node.")] = 1,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory of each node's executor.")] = "700m",
    hosts: Annotated[
        bool, typer.Option("--hosts", help="Give each node a network namespace of its own, whose link can be cut (Linux, root).")
    ] = False,
    folder: Folder = None,
) -> None:
    """Start a master and nodes, and print the URL for `resurge run --master`."""
    from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster

    cluster = EmbeddedCluster(
        nodes,
        cpu_share=shares_of(cpu_share),
        domains=None if domains is None else [domain.strip() for domain in domains.split(",")],
        cores_per_node=cores,
        memory=memory,
        folder=_folder(folder),
        has_hosts=hosts,
    )
    cluster.start(detached=True)
    try:
        cluster.wait_registered()
    except BaseException:
        cluster.stop()
        raise
    print(cluster.master_url)


@app.command()
def add(
    count: Annotated[int, typer.Argument(min=1, metavar="[COUNT]", help="How many nodes.")] = 1,
    cpu_share: Annotated[float, typer.Option(metavar="S", help="How fast they are, against a whole core.")] = 1.0,
    domain: Annotated[str | None, typer.Option(metavar="R", help="Their failure domain.")] = None,
    folder: Folder = None,
) -> None:
    """Start more nodes; jobs that run see them join."""
    cluster = _running(folder)
    names = cluster.add(count, cpu_share, domain)
    cluster.wait_registered(names)
    print("\n".join(names))


@app.command()
def kill(
    names: Annotated[list[str], typer.Argument(metavar="NODE...", help="The nodes to kill.")],
    folder: Folder = None,
) -> None:
    """Kill nodes at once with kill -9: worker, executor and Python workers."""
    _running(folder).kill(*names)


Names = Annotated[list[str], typer.Argument(metavar="NODE...", help="Nodes, or driver.")]


@app.command()
def cut(names: Names, folder: Folder = None) -> None:
    """Cut nodes, or the driver, off from everybody; their processes go on. For a cluster started with --hosts."""
    _running(folder).cut(*names)


@app.command()
def heal(names: Names, folder: Folder = None) -> None:
    """Join nodes, or the driver, that were cut off."""
    _running(folder).heal(*names)


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    folder: Folder = None,
) -> None:
    """Show the master's URL and every node, dead ones too."""
    cluster = _running(folder)
    found = status_of(cluster)
    if as_json:
        import msgspec

        print(msgspec.json.encode(found).decode())
    else:
        _show(found)


@app.command()
def stop(folder: Folder = None) -> None:
    """Kill all nodes and the master."""
    _running(folder).stop()


def shares_of(text: str) -> float | list[float]:
    """One share for all nodes, or one for each.

    >>> shares_of("0.5"), shares_of("1, 0.5")
    (0.5, [1.0, 0.5])
    """
    from resurge.errors import ClusterError

    try:
        shares = [float(share) for share in text.split(",")]
    except ValueError:
        raise ClusterError(f"expected a cpu share such as 0.5, or one per node such as 1,1,0.5, got {text!r}") from None
    return shares[0] if len(shares) == 1 else shares


def status_of(cluster: "EmbeddedCluster") -> dict[str, Any]:
    """Everything that is shown, as plain values."""
    return {
        "master": cluster.master_url,
        "folder": str(cluster.folder),
        "nodes": [
            {
                "name": node.name,
                "domain": node.domain,
                "cpu_share": node.cpu_share,
                "worker_pid": node.worker_pid,
                "is_alive": node.is_alive,
            }
            for node in cluster.nodes()
        ],
    }


def _folder(folder: Path | None) -> Path:
    from resurge.runtime.embedded_cluster.state import default_folder

    return folder if folder is not None else default_folder()


def _running(folder: Path | None) -> "EmbeddedCluster":
    from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster

    return EmbeddedCluster.running(_folder(folder))


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    for name in ("node", "domain", "cpu share", "worker", "state"):
        table.add_column(name)
    for node in found["nodes"]:
        state = Text("alive", style="green") if node["is_alive"] else Text("dead", style="red")
        table.add_row(Text(node["name"]), Text(node["domain"]), f"{node['cpu_share']:g}", str(node["worker_pid"]), state)
    console = Console()
    console.print(found["master"], highlight=False, soft_wrap=True)
    console.print(table)
