"""When queries were down and came back, and what a failure cost: computed from events."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from resurge.telemetry import metrics
from resurge.telemetry.events import (
    CatchUpFinished,
    EpochFinished,
    Event,
    NodeJoined,
    NodeLost,
    NodesKilled,
    QueriesChanged,
    RecoveryPlanned,
)

AVAILABLE_BELOW = 1.2


@dataclass(frozen=True)
class Outage:
    """A time during which a query produced no output in step with the stream; `to_s` is None if it did not end."""

    query: str
    from_s: float
    to_s: float | None


@dataclass(frozen=True)
class RecoveryFigures:
    """What a failure cost, in seconds from the kill (or, where nobody tells of it, from the first loss that was seen).

    Apart: until the loss was seen, until the planner had chosen, restoring state, and catching up, summed over all steps.

    A query is back when it commits in step with the stream again, and available when its latency is normal again. The outage
    area is the sum over queries of priority times the time not available.
    """

    first_back_s: float | None
    all_back_s: float | None
    first_available_s: float | None
    all_available_s: float | None
    outage_area: float
    detected_after_s: float | None
    planned_after_s: float | None
    restore_s: float
    catch_up_s: float
    queries_down: int


def query_of(query_partition: str) -> str:
    """The query that a query partition belongs to."""
    return query_partition.rsplit("/", 1)[0]


def failure_s(events: Iterable[Event]) -> float | None:
    """When the first nodes were killed, where that is told; else when the first was seen to be lost."""
    return next((event.at_s for event in events if isinstance(event, NodesKilled | NodeLost)), None)


def outages(events: Sequence[Event]) -> list[Outage]:
    """Every outage of every query: from its first partition down to its last one back."""
    known = _queries(events)
    down: dict[str, set[str]] = {query: set() for query in known}
    began: dict[str, float] = {}
    found: list[Outage] = []
    for event in events:
        if not isinstance(event, QueriesChanged):
            continue
        for name in event.down:
            query = query_of(name)
            if query in down:
                if not down[query]:
                    began[query] = event.at_s
                down[query].add(name)
        for name in event.back:
            query = query_of(name)
            if name in down.get(query, ()):
                down[query].discard(name)
                if not down[query]:
                    found.append(Outage(query, began.pop(query), event.at_s))
    return found + [Outage(query, at_s, None) for query, at_s in began.items()]


def _queries(events: Iterable[Event]) -> Mapping[str, int]:
    return metrics.priorities(events)


def figures(events: Sequence[Event], until_s: float | None = None) -> RecoveryFigures:
    """The figures of the failure that a log tells of; an outage without end lasts until the end of the log."""
    end_s = until_s if until_s is not None else max((event.at_s for event in events), default=0.0)
    began = failure_s(events)
    lasting = outages(events)
    if began is None:
        return RecoveryFigures(None, None, None, None, 0.0, None, None, 0.0, 0.0, 0)
    priorities = _queries(events)
    failed = {outage.query for outage in lasting}
    back = [outage.to_s for outage in lasting if outage.to_s is not None]
    gaps = {query: unavailable(events, query, began, end_s) for query in priorities}
    returns = {query: max((to for _, to in gaps[query]), default=began) for query in failed}
    after = [event for event in events if event.at_s >= began]
    seen = next((event.at_s for event in after if isinstance(event, NodeLost)), None)
    planned = next((event.at_s for event in after if isinstance(event, RecoveryPlanned)), None)
    steps = [event for event in after if isinstance(event, CatchUpFinished)]
    restore_s = sum(step.restore_s for step in steps)
    first_available = min((min(to for _, to in gaps[q]) for q in failed if gaps[q] and gaps[q][0][1] < end_s), default=None)
    is_over = bool(returns) and max(returns.values()) < end_s
    return RecoveryFigures(
        min(back) - began if back else None,
        max(back) - began if lasting and len(back) == len(lasting) else None,
        first_available - began if first_available is not None else None,
        max(returns.values()) - began if is_over else None,
        sum(priorities[query] * sum(to - since for since, to in gaps[query]) for query in priorities),
        seen - began if seen is not None else None,
        planned - began if planned is not None else None,
        restore_s,
        sum(step.took_s for step in steps) - restore_s,
        len(failed),
    )


def unavailable(
    events: Sequence[Event], query: str, from_s: float, to_s: float, step_s: float = 0.5
) -> list[tuple[float, float]]:
    """When a query was not available: down, without output, or with an average relative latency of 1.2 or more."""
    points = relative_latencies(events).get(query, [])
    lasting = [outage for outage in outages(events) if outage.query == query]
    if lasting:
        # What a query that went down showed before the failure says nothing of what it is like when it is back.
        points = [point for point in points if point.at_s >= from_s]
    window_s = 2.5 * _epoch_length_s(events, from_s)
    found: list[tuple[float, float]] = []
    moment = from_s
    while moment < to_s:
        is_down = any(o.from_s <= moment and (o.to_s is None or moment < o.to_s) for o in lasting)
        recent = [point.value for point in points if moment - window_s <= point.at_s <= moment]
        if is_down or not recent or sum(recent) / len(recent) >= AVAILABLE_BELOW:
            until = min(moment + step_s, to_s)
            found = [*found[:-1], (found[-1][0], until)] if found and found[-1][1] == moment else [*found, (moment, until)]
        moment += step_s
    return found


def _epoch_length_s(events: Iterable[Event], before_s: float) -> float:
    """The usual time between two epochs before the failure."""
    moments = [event.at_s for event in events if isinstance(event, EpochFinished) and event.at_s < before_s]
    gaps = metrics.spread(after - before for before, after in pairwise(moments))
    return gaps.p50 if gaps is not None else 1.0


def relative_latencies(events: Sequence[Event]) -> dict[str, metrics.Series]:
    """Each query's latency over its median before the failure."""
    began = failure_s(events)
    if began is None:
        return {}
    found: dict[str, metrics.Series] = {}
    for query, points in metrics.latency(events, caught_up=True).items():
        before = metrics.spread(point.value for point in points if point.at_s < began)
        if before is not None and before.p50 > 0:
            found[query] = [metrics.Point(point.at_s, point.value / before.p50) for point in points]
    return found


def healthy_ratio(events: Sequence[Event]) -> float | None:
    """Median latency after the failure over before, of the queries that never went down."""
    began = failure_s(events)
    broken = {outage.query for outage in outages(events)}
    if began is None:
        return None
    before, after = [], []
    for query, points in metrics.latency(events).items():
        if query not in broken:
            before += [point.value for point in points if point.at_s < began]
            after += [point.value for point in points if point.at_s >= began]
    early, late = metrics.spread(before), metrics.spread(after)
    return late.p50 / early.p50 if early is not None and late is not None and early.p50 > 0 else None


def join_ratio(events: Sequence[Event]) -> float | None:
    """The highest relative latency in the two epochs after a node joined, of queries that did not come back in them."""
    relative = relative_latencies(events)
    epochs = [event.at_s for event in events if isinstance(event, EpochFinished)]
    lasting = outages(events)
    highest: list[float] = []
    for joined in (event.at_s for event in events if isinstance(event, NodeJoined)):
        later = [moment for moment in epochs if moment > joined][:2]
        if len(later) < 2:
            continue
        down = {outage.query for outage in lasting if outage.to_s is None or joined < outage.to_s}
        up = {query: line for query, line in relative.items() if query not in down}
        highest += [point.value for line in up.values() for point in line if joined < point.at_s <= later[-1]]
    return max(highest, default=None)


def available_queries(events: Sequence[Event], step_s: float = 1.0) -> list[tuple[float, int]]:
    """How many queries were available at each moment after the failure."""
    began = failure_s(events)
    if began is None:
        return []
    end_s = max(event.at_s for event in events)
    gaps = [unavailable(events, query, began, end_s) for query in _queries(events)]
    moments = [began + step_s * index for index in range(int((end_s - began) / step_s) + 1)]
    return [(m - began, sum(not any(since <= m < to for since, to in mine) for mine in gaps)) for m in moments]


def node_changes(events: Iterable[Event]) -> list[tuple[float, int, str]]:
    """When nodes were lost (-1) and joined (+1)."""
    return [
        (event.at_s, -1 if isinstance(event, NodeLost) else 1, event.node)
        for event in events
        if isinstance(event, NodeLost | NodeJoined)
    ]
