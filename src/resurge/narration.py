"""Changes of facts as events, told alike by a real and by a simulated driver."""

from collections.abc import Iterator

from resurge.protocols.recovery import Facts, Phase
from resurge.telemetry import events


def changed(now_s: float, before: Facts, after: Facts) -> Iterator[events.Event]:
    """Nodes that went and came, buffering switched, queries that went down and came back."""
    for node in sorted(set(before.capacity) - set(after.capacity)):
        count = sum(known.node == node for known in before.standing.values())
        yield events.NodeLost(now_s, node, count, after.is_buffering)
    for node in sorted(set(after.capacity) - set(before.capacity)):
        yield events.NodeJoined(now_s, node, round(after.capacity[node], 4))
    if before.is_buffering != after.is_buffering:
        yield events.BufferingSwitched(now_s, after.head, after.is_buffering)
    if before.standing is after.standing:
        return
    was, is_live = before.live_queries, after.live_queries
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
