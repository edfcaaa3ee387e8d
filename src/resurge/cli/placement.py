"""Where partitions lie and how full nodes are, as tables for the live view and for `resurge status`."""

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from resurge.telemetry.cluster_view import ClusterView
from resurge.telemetry.events import MoveEnded
from resurge.telemetry.wording import bytes_in_words, seconds_in_words

NODES_SHOWN = 12
OPERATORS_SHOWN = 4


def node_table(cluster: ClusterView) -> Table:
    """For each node how full it is, how many partitions of which operators it holds, and how many copies; the fullest first."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("node")
    table.add_column("utilisation", justify="right")
    table.add_column("partitions", justify="right")
    if cluster.copies:
        table.add_column("copies", justify="right")
    table.add_column("of which")
    used = {node: cluster.utilisation(node) for node in cluster.loads}
    ordered = sorted(used, key=lambda node: (-(used[node] or 0.0), cluster.names.get(node, node)))
    for node in ordered[:NODES_SHOWN]:
        held = cluster.loads[node].partitions
        share = used[node]
        full = "drains" if share is None else f"{share:.0%}"
        copies = [f"{cluster.copies.get(node, 0):,}"] if cluster.copies else []
        table.add_row(Text(cluster.names.get(node, node)), full, f"{sum(held.values()):,}", *copies, Text(_operators(held)))
    if len(ordered) > NODES_SHOWN:
        table.add_row(Text(f"and {len(ordered) - NODES_SHOWN} more", style="dim"))
    return table


def _operators(held: Mapping[str, int]) -> str:
    most = sorted(held.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{name} {count}" for name, count in most[:OPERATORS_SHOWN])
    return listed + (f" and {len(most) - OPERATORS_SHOWN} more" if len(most) > OPERATORS_SHOWN else "")


def move_in_words(event: MoveEnded) -> str:
    """What a move did, in one line."""
    counted = f"{event.moved} partition{'' if event.moved == 1 else 's'} moved in {seconds_in_words(event.took_s)}"
    pause = (
        f", paused for {seconds_in_words(event.pause_s)}, {bytes_in_words(event.shipped_bytes)} shipped" if event.moved else ""
    )
    return f"{counted}{pause}{': ' + event.failure if event.failure else ''}"
