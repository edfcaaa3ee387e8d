"""Which nodes a job has and which of its queries are up, as the newest events tell."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from resurge.model.names import query_of
from resurge.telemetry.events import (
    CopiesPlaced,
    Event,
    JobStarted,
    LagMeasured,
    LoadMeasured,
    MoveEnded,
    NodeJoined,
    NodeLoad,
    NodeLost,
    NodeNamed,
    NodeResponded,
    NodeSuspected,
    QueriesChanged,
)

MOVES_KEPT = 3


@dataclass(frozen=True)
class ClusterView:
    """Nodes that are there, what the user calls them, who is waited for, and query partitions that are down.

    `loads` are what nodes hold and have to do, `copies` how many copies of states lie on each, `moves` the last ones that ended. `awaited` are the queries of a job that was resumed and that have not shown anything since; `lag` are the rows that wait in
    each partition of each source that knows its partitions.
    """

    nodes: frozenset[str] = frozenset()
    names: Mapping[str, str] = field(default_factory=dict)
    suspected: frozenset[str] = frozenset()
    down: frozenset[str] = frozenset()
    awaited: frozenset[str] = frozenset()
    lag: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    loads: Mapping[str, NodeLoad] = field(default_factory=dict)
    moves: tuple[MoveEnded, ...] = ()
    copies: Mapping[str, int] = field(default_factory=dict)

    def utilisation(self, node: str) -> float | None:
        """What a node uses of what it may spend; None if it may spend nothing, because it drains."""
        load = self.loads[node]
        return load.cpu_s_per_s / load.capacity if load.capacity > 0 else None

    def name(self, node: str) -> str:
        """What to call a node: as the user knows it, with its executor; else its executor alone."""
        return f"{self.names[node]} (executor {node})" if node in self.names else f"node {node}"

    def of_query(self, query: str) -> str:
        """Whether a query is up, in words."""
        down = sum(query_of(partition) == query for partition in self.down)
        if down:
            return f"down: {down} partition{'s' if down > 1 else ''}"
        return "starting" if query in self.awaited else "up"


def after(cluster: ClusterView, event: Event) -> ClusterView:
    """What is known after one more event."""
    if isinstance(event, JobStarted):
        awaited = frozenset(event.priorities) if event.generation > 1 else frozenset()
        return ClusterView(frozenset(event.nodes), cluster.names, awaited=awaited)
    if isinstance(event, LoadMeasured):
        return replace(cluster, loads=event.nodes)
    if isinstance(event, CopiesPlaced):
        return replace(cluster, copies=event.nodes)
    if isinstance(event, MoveEnded):
        return replace(cluster, moves=(*cluster.moves, event)[-MOVES_KEPT:])
    if isinstance(event, NodeNamed):
        return replace(cluster, names={**cluster.names, event.node: event.name})
    if isinstance(event, LagMeasured):
        return replace(cluster, lag=event.sources)
    if isinstance(event, NodeJoined):
        return replace(cluster, nodes=cluster.nodes | {event.node})
    if isinstance(event, NodeLost):
        return replace(cluster, nodes=cluster.nodes - {event.node}, suspected=cluster.suspected - {event.node})
    if isinstance(event, NodeSuspected):
        return replace(cluster, suspected=cluster.suspected | {event.node})
    if isinstance(event, NodeResponded):
        return replace(cluster, suspected=cluster.suspected - {event.node})
    if isinstance(event, QueriesChanged):
        back = frozenset(query_of(partition) for partition in event.back)
        down = (cluster.down | frozenset(event.down)) - frozenset(event.back)
        return replace(cluster, down=down, awaited=cluster.awaited - back)
    return cluster
