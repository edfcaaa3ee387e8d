"""Changes of facts as events, told alike by a real and by a simulated driver."""

from collections.abc import Iterator

from resurge.protocols.recovery import Facts, Phase
from resurge.telemetry import events


class Narrator:
    """Tells what has changed since it last told of it, so that nothing that came about in between is left out."""

    def __init__(self) -> None:
        self._told: frozenset[str] | None = None
        self._seen: Facts | None = None

    def started(self, *, is_new: bool) -> None:
        """A driver began: of a new job nobody is waiting for a query yet, else all that run are back."""
        self._told, self._seen = None if is_new else frozenset(), None

    def changed(self, now_s: float, before: Facts, after: Facts) -> Iterator[events.Event]:
        """Nodes that went and came, buffering switched, queries that went down and came back."""
        for node in sorted(set(before.capacity) - set(after.capacity)):
            count = sum(known.node == node for known in before.standing.values())
            yield events.NodeLost(now_s, node, count, after.is_buffering)
        for node in sorted(set(after.capacity) - set(before.capacity)):
            yield events.NodeJoined(now_s, node, round(after.capacity[node], 4))
        if before.is_buffering != after.is_buffering:
            yield events.BufferingSwitched(now_s, after.head, after.is_buffering)
        if self._seen is not None and self._seen.standing is after.standing:
            return
        self._seen, is_live = after, after.live_queries
        was = self._told if self._told is not None else is_live
        self._told = is_live if self._told is not None or is_live else None
        if was != is_live:
            yield events.QueriesChanged(now_s, after.head, sorted(was - is_live), sorted(is_live - was))


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
