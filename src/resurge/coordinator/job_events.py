"""Telemetry events that follow from changes of a job: the same on Spark and in the simulator."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from resurge.coordinator.costs import places, used
from resurge.model.names import NodeId, Partition, query_of
from resurge.model.topology import Topology
from resurge.operators.base import StatefulOperator
from resurge.protocols.recovery import Graph, Phase, RecoveryState
from resurge.telemetry import events

LOAD_AT_LEAST_EVERY_S = 5.0
LOAD_AT_MOST_EVERY_S = 1.0
NO_QUERY = "(no query)"


@dataclass(frozen=True)
class Emitted:
    """What has been emitted: the query partitions that are back, None if nobody waits for any yet; and the last load."""

    live: frozenset[str] | None = None
    seen: int | None = None
    load_s: float = float("-inf")
    loaded: tuple[tuple[str, NodeId | None], ...] = ()

    @classmethod
    def at_start(cls, *, is_new: bool) -> "Emitted":
        """A driver began: of a new job nobody is waiting for a query yet, else all that run are back."""
        return cls(None if is_new else frozenset())

    def changed(self, now_s: float, before: RecoveryState, after: RecoveryState) -> tuple["Emitted", list[events.Event]]:
        """Nodes that went and came, buffering switched, queries that went down."""
        found: list[events.Event] = []
        for node in sorted(set(before.capacity) - set(after.capacity)):
            count = sum(known.node == node for known in before.statuses.values())
            found.append(events.NodeLost(now_s, node, count, after.is_buffering))
        for node in sorted(set(after.capacity) - set(before.capacity)):
            found.append(events.NodeJoined(now_s, node, round(after.capacity[node], 4)))
        if before.is_buffering != after.is_buffering:
            found.append(events.BufferingSwitched(now_s, after.head, after.is_buffering))
        if before.revision == after.revision or self.live is None or self.live <= after.live_queries:
            return self, found
        down = self.live - after.live_queries
        return replace(self, live=self.live - down), [*found, events.QueriesChanged(now_s, after.head, sorted(down), [])]

    def committed(self, now_s: float, after: RecoveryState) -> tuple["Emitted", list[events.Event]]:
        """Queries that came back; also those that had nothing to catch up with, and so were live without a step."""
        if self.seen == after.revision:
            return self, []
        emitted = replace(self, seen=after.revision)
        if self.live is None:
            return replace(emitted, live=after.live_queries or None), []
        # The very same value, most of the time: two equal ones would be compared query partition by query partition.
        if self.live is after.live_queries:
            return emitted, []
        back = after.live_queries - self.live
        found: list[events.Event] = [events.QueriesChanged(now_s, after.head, [], sorted(back))] if back else []
        live = self.live | back
        return replace(emitted, live=after.live_queries if live == after.live_queries else live), found

    def measured(self, now_s: float, recovery: RecoveryState, buffered_bytes: int = 0) -> tuple["Emitted", list[events.Event]]:
        """The load of operators and nodes, when something has moved or some seconds have passed."""
        since_s = now_s - self.load_s
        if since_s < LOAD_AT_MOST_EVERY_S:
            return self, []
        placed = recovery.roster.placed
        if since_s < LOAD_AT_LEAST_EVERY_S and (placed is self.loaded or placed == self.loaded):
            return self, []
        return replace(self, load_s=now_s, loaded=placed), [load(now_s, recovery, buffered_bytes)]


def described(now_s: float, topology: Topology) -> events.TopologyDescribed:
    """Operators and queries of a topology."""
    operators = {
        name: events.OperatorDescription(type(operator).__name__, list(operator.inputs), isinstance(operator, StatefulOperator))
        for name, operator in topology.operators.items()
    }
    return events.TopologyDescribed(now_s, operators, {query.name: query.operator for query in topology.queries.values()})


def described_graph(now_s: float, graph: Graph, outputs: Mapping[str, str]) -> events.TopologyDescribed:
    """The operators whose partitions form a graph, where no more is known of them."""
    inputs: dict[str, dict[str, None]] = {}
    for partition, above in graph.upstream.items():
        inputs.setdefault(partition.operator, {}).update(dict.fromkeys(sorted(other.operator for other in above)))
    operators = {name: events.OperatorDescription("Operator", list(above), True) for name, above in inputs.items()}
    return events.TopologyDescribed(now_s, operators, dict(outputs))


def load(now_s: float, recovery: RecoveryState, buffered_bytes: int = 0) -> events.LoadMeasured:
    """What operators and nodes have to do, by the costs of the partitions that are up."""
    known, head = places(recovery.roster), recovery.head
    costs, nodes = used(recovery)
    return events.LoadMeasured(
        now_s,
        head,
        {
            name: events.OperatorLoad(round(costs[name], 5), head - known.cursors.get(name, head), dict(counts))
            for name, counts in known.phases.items()
        },
        {
            node: events.NodeLoad(round(nodes.get(node, 0.0), 5), round(capacity, 5), dict(known.held.get(node, {})))
            for node, capacity in recovery.capacity.items()
        },
        buffered_bytes,
    )


def planned(
    now_s: float, before: RecoveryState, after: RecoveryState, took_s: float, strategy: str = ""
) -> Iterator[events.Event]:
    """What the planner chose to come back, if anything, and what it chose from."""
    scheduled = {
        str(partition): str(known.node)
        for partition, known in after.statuses.items()
        if known.phase is Phase.CATCHING_UP and before.statuses[partition].phase is not Phase.CATCHING_UP
    }
    if not scheduled:
        return
    up = frozenset(after.of_phase(Phase.LIVE, Phase.CATCHING_UP))
    live = before.live_queries
    queries = sorted(name for name, need in after.graph.queries.items() if name not in live and need.partitions <= up)
    free = replace(before, capacity=after.capacity, costs=after.costs).free()
    rounded = {str(node): round(value, 5) for node, value in free.items()}
    yield events.RecoveryPlanned(now_s, queries, scheduled, took_s, strategy, rounded, _needs(before, after))


def _needs(before: RecoveryState, after: RecoveryState) -> dict[str, events.QueryNeed]:
    """What each failed query needed to come back, before the planner chose."""
    up = frozenset(before.of_phase(Phase.LIVE, Phase.CATCHING_UP))
    missing: dict[str, set[Partition]] = {}
    for name, need in after.graph.queries.items():
        if not name.endswith(NO_QUERY) and not need.partitions <= up:
            missing.setdefault(query_of(name), set()).update(need.partitions - up)
    return {
        query: events.QueryNeed(len(partitions), round(sum(after.costs.get(partition, 0.0) for partition in partitions), 5))
        for query, partitions in missing.items()
    }
