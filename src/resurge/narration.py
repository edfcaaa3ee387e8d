"""Changes of facts as events, told alike by a real and by a simulated driver."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from resurge.model.names import Partition
from resurge.model.topology import Topology
from resurge.operators.base import StatefulOperator
from resurge.protocols.recovery import Facts, Graph, Phase
from resurge.telemetry import events

LOAD_AT_LEAST_EVERY_S = 5.0
LOAD_AT_MOST_EVERY_S = 1.0
NO_QUERY = "(no query)"


class Narrator:
    """Tells of queries that they are down when it happens, and that they are back with the commit that shows it."""

    def __init__(self) -> None:
        self._live: frozenset[str] | None = None
        self._seen: Facts | None = None
        self._loaded: tuple[float, Facts] | None = None

    def load(self, now_s: float, facts: Facts, measured: Callable[[], Facts], buffered_bytes: int = 0) -> Iterator[events.Event]:
        """The load of operators and nodes, when something has moved or some seconds have passed; `measured` adds the costs."""
        if self._loaded is not None:
            since_s, is_same = now_s - self._loaded[0], _is_placed_alike(self._loaded[1], facts)
            if since_s < (LOAD_AT_LEAST_EVERY_S if is_same else LOAD_AT_MOST_EVERY_S):
                return
        self._loaded = now_s, facts
        yield load(now_s, measured(), buffered_bytes)

    def started(self, *, is_new: bool) -> None:
        """A driver began: of a new job nobody is waiting for a query yet, else all that run are back."""
        self._live, self._seen = None if is_new else frozenset(), None

    def changed(self, now_s: float, before: Facts, after: Facts) -> Iterator[events.Event]:
        """Nodes that went and came, buffering switched, queries that went down."""
        for node in sorted(set(before.capacity) - set(after.capacity)):
            count = sum(known.node == node for known in before.standing.values())
            yield events.NodeLost(now_s, node, count, after.is_buffering)
        for node in sorted(set(after.capacity) - set(before.capacity)):
            yield events.NodeJoined(now_s, node, round(after.capacity[node], 4))
        if before.is_buffering != after.is_buffering:
            yield events.BufferingSwitched(now_s, after.head, after.is_buffering)
        if before.standing is not after.standing and self._live is not None and not self._live <= after.live_queries:
            down = self._live - after.live_queries
            self._live -= down
            yield events.QueriesChanged(now_s, after.head, sorted(down), [])

    def committed(self, now_s: float, after: Facts) -> Iterator[events.Event]:
        """Queries that came back; also those that had nothing to catch up with, and so were live without a step."""
        if self._seen is not None and self._seen.standing is after.standing:
            return
        self._seen = after
        if self._live is None:
            self._live = after.live_queries or None
        elif back := after.live_queries - self._live:
            self._live |= back
            yield events.QueriesChanged(now_s, after.head, [], sorted(back))


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


def load(now_s: float, facts: Facts, buffered_bytes: int = 0) -> events.LoadMeasured:
    """What operators and nodes have to do, by the costs of the partitions that are up."""
    phases: dict[str, dict[str, int]] = {}
    behind: dict[str, int] = {}
    costs: dict[str, float] = {}
    used: dict[str, float] = {}
    held: dict[str, dict[str, int]] = {}
    for (operator, _), standing in facts.standing.items():
        counts = phases.setdefault(operator, {})
        counts[standing.phase.value] = counts.get(standing.phase.value, 0) + 1
        behind[operator] = max(behind.get(operator, 0), facts.head - standing.cursor)
    for partition, standing in facts.standing.items():
        if standing.node is None:
            continue
        cost = facts.costs.get(partition, 0.0) if standing.phase is not Phase.STALLED else 0.0
        costs[partition.operator] = costs.get(partition.operator, 0.0) + cost
        used[standing.node] = used.get(standing.node, 0.0) + cost
        operators = held.setdefault(standing.node, {})
        operators[partition.operator] = operators.get(partition.operator, 0) + 1
    return events.LoadMeasured(
        now_s,
        facts.head,
        {name: events.OperatorLoad(round(costs.get(name, 0.0), 5), behind[name], counts) for name, counts in phases.items()},
        {
            node: events.NodeLoad(round(used.get(node, 0.0), 5), round(capacity, 5), held.get(node, {}))
            for node, capacity in facts.capacity.items()
        },
        buffered_bytes,
    )


def _is_placed_alike(before: Facts, after: Facts) -> bool:
    if before.capacity.keys() != after.capacity.keys():
        return False
    return before.standing is after.standing or all(
        (known.phase, known.node) == (after.standing[partition].phase, after.standing[partition].node)
        for partition, known in before.standing.items()
    )


def planned(now_s: float, before: Facts, after: Facts, took_s: float, strategy: str = "") -> Iterator[events.Event]:
    """What the planner chose to come back, if anything, and what it chose from."""
    scheduled = {
        str(partition): str(known.node)
        for partition, known in after.standing.items()
        if known.phase is Phase.CATCHING_UP and before.standing[partition].phase is not Phase.CATCHING_UP
    }
    if not scheduled:
        return
    up = frozenset(after.of_phase(Phase.LIVE, Phase.CATCHING_UP))
    live = before.live_queries
    queries = sorted(name for name, need in after.graph.queries.items() if name not in live and need.partitions <= up)
    free = replace(before, capacity=after.capacity, costs=after.costs).free()
    rounded = {str(node): round(value, 5) for node, value in free.items()}
    yield events.RecoveryPlanned(now_s, queries, scheduled, took_s, strategy, rounded, _needs(before, after))


def _needs(before: Facts, after: Facts) -> dict[str, events.QueryNeed]:
    """What each failed query needed to come back, before the planner chose."""
    up = frozenset(before.of_phase(Phase.LIVE, Phase.CATCHING_UP))
    missing: dict[str, set[Partition]] = {}
    for name, need in after.graph.queries.items():
        if not name.endswith(NO_QUERY) and not need.partitions <= up:
            missing.setdefault(name.rsplit("/", 1)[0], set()).update(need.partitions - up)
    return {
        query: events.QueryNeed(len(partitions), round(sum(after.costs.get(partition, 0.0) for partition in partitions), 5))
        for query, partitions in missing.items()
    }
