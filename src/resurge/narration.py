"""Changes of facts as events, told alike by a real and by a simulated driver."""

from collections.abc import Iterator

from resurge.protocols.recovery import Facts, Phase
from resurge.telemetry import events


class Narrator:
    """Tells of queries that they are down when it happens, and that they are back with the commit that shows it."""

    def __init__(self) -> None:
        self._live: frozenset[str] | None = None
        self._seen: Facts | None = None

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


def planned(now_s: float, before: Facts, after: Facts, took_s: float) -> Iterator[events.Event]:
    """What the planner chose to come back, if anything."""
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
    yield events.RecoveryPlanned(now_s, queries, scheduled, took_s)
