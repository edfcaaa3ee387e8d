"""When queries were down and came back, and what a failure cost: computed from events."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from resurge.telemetry import metrics
from resurge.telemetry.events import (
    CatchUpFinished,
    EpochFinished,
    Event,
    JobStarted,
    NodeJoined,
    NodeLost,
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
    """What a failure cost, in seconds from the first loss of a node; detection, restore and catch-up apart."""

    first_back_s: float | None
    all_back_s: float | None
    outage_area: float
    planned_after_s: float | None
    catch_up_s: float
    queries_down: int


def query_of(query_partition: str) -> str:
    """The query that a query partition belongs to."""
    return query_partition.rsplit("/", 1)[0]


def failure_s(events: Iterable[Event]) -> float | None:
    """When the first node was seen to be lost."""
    return next((event.at_s for event in events if isinstance(event, NodeLost)), None)


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
    priorities = _queries(events)
    area = sum(priorities.get(o.query, 1) * ((o.to_s if o.to_s is not None else end_s) - o.from_s) for o in lasting)
    back = [outage.to_s for outage in lasting if outage.to_s is not None]
    after = [event for event in events if began is not None and event.at_s >= began]
    planned = next((event.at_s for event in after if isinstance(event, RecoveryPlanned)), None)
    is_over = bool(lasting) and len(back) == len(lasting)
    return RecoveryFigures(
        min(back) - began if back and began is not None else None,
        max(back) - began if is_over and began is not None else None,
        area,
        planned - began if planned is not None and began is not None else None,
        sum(event.took_s for event in after if isinstance(event, CatchUpFinished)),
        len({outage.query for outage in lasting}),
    )


def relative_latencies(events: Sequence[Event]) -> dict[str, metrics.Series]:
    """Each query's latency over its median before the failure."""
    began = failure_s(events)
    if began is None:
        return {}
    found = {}
    for query, points in metrics.latency(events, caught_up=True).items():
        before = metrics.spread(point.value for point in points if point.at_s < began)
        if before is not None and before.p50 > 0:
            found[query] = metrics.relative(points, before.p50)
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


def available_queries(events: Sequence[Event], step_s: float = 1.0, window_s: float = 5.0) -> list[tuple[float, int]]:
    """How many queries were available at each moment: average relative latency below 1.2 over the last few seconds.

    A query that is down, or showed nothing in the window after the failure, is not available.
    """
    began = failure_s(events)
    if began is None:
        return []
    series = relative_latencies(events)
    lasting = outages(events)
    first = min(event.at_s for event in events if isinstance(event, EpochFinished | JobStarted))
    last = max(event.at_s for event in events)
    found = []
    moment = max(first, began - 20)
    while moment <= last:
        count = 0
        for query, points in series.items():
            if any(o.query == query and o.from_s <= moment and (o.to_s is None or moment < o.to_s) for o in lasting):
                continue
            recent = [point.value for point in points if moment - window_s <= point.at_s <= moment]
            count += bool(recent) and sum(recent) / len(recent) < AVAILABLE_BELOW
        found.append((moment - began, count))
        moment += step_s
    return found


def node_changes(events: Iterable[Event]) -> list[tuple[float, int, str]]:
    """When nodes were lost (-1) and joined (+1)."""
    return [
        (event.at_s, -1 if isinstance(event, NodeLost) else 1, event.node)
        for event in events
        if isinstance(event, NodeLost | NodeJoined)
    ]
