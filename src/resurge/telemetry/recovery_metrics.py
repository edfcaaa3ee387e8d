"""When queries were down and came back, and what a failure cost: computed from events."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from resurge.model.names import query_of
from resurge.telemetry import metrics
from resurge.telemetry.events import (
    CatchUpFinished,
    EpochFinished,
    Event,
    JobStarted,
    NodeJoined,
    NodeLost,
    NodesKilled,
    QueriesChanged,
    RecoveryPlanned,
)

AVAILABLE_BELOW = 1.2
TOUCHING_S = 1e-6
SETTLED_EPOCHS = 5
"""So many epochs at the end of a log tell how long epochs take after a recovery."""


@dataclass(frozen=True)
class Outage:
    """A time during which a query produced no output in step with the stream; `to_s` is None if it did not end."""

    query: str
    from_s: float
    to_s: float | None


class Gap(NamedTuple):
    """A time during which a part of a query was not available: the share of its partitions, or all of it."""

    from_s: float
    to_s: float
    share: float


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


def figures(events: Sequence[Event], longest_s: float | None = None) -> RecoveryFigures:
    """The figures of the failure that a log tells of; an outage without end lasts until the end of the log.

    To compare logs that do not end alike, what comes so long after the failure is not looked at.
    """
    began = failure_s(events)
    end_s = max((event.at_s for event in events), default=0.0)
    if longest_s is not None and began is not None:
        end_s = min(end_s, began + longest_s)
        events = [event for event in events if event.at_s <= end_s]
    lasting = outages(events)
    if began is None:
        return RecoveryFigures(None, None, None, None, 0.0, None, None, 0.0, 0.0, 0)
    priorities = _queries(events)
    failed = {outage.query for outage in lasting}
    back = [outage.to_s for outage in lasting if outage.to_s is not None]
    lacking = gaps(events, began, end_s)
    returns = {query: max((gap.to_s for gap in lacking[query]), default=began) for query in failed}
    after = [event for event in events if event.at_s >= began]
    seen = next((event.at_s for event in after if isinstance(event, NodeLost)), None)
    planned = next((event.at_s for event in after if isinstance(event, RecoveryPlanned)), None)
    steps = [event for event in after if isinstance(event, CatchUpFinished)]
    restore_s = sum(step.restore_s for step in steps)
    regained = [_first_end_s(lacking[query]) for query in failed if lacking[query]]
    first_available = min((moment for moment in regained if moment < end_s), default=None)
    is_over = bool(returns) and max(returns.values()) < end_s
    return RecoveryFigures(
        min(back) - began if back else None,
        max(back) - began if lasting and len(back) == len(lasting) else None,
        first_available - began if first_available is not None else None,
        max(returns.values()) - began if is_over else None,
        sum(priorities[query] * gap.share * (gap.to_s - gap.from_s) for query in priorities for gap in lacking[query]),
        seen - began if seen is not None else None,
        planned - began if planned is not None else None,
        restore_s,
        sum(step.took_s for step in steps) - restore_s,
        len(failed),
    )


def _first_end_s(lacking: Sequence[Gap]) -> float:
    """When the first stretch of gaps without a pause between them ended."""
    end_s = lacking[0].to_s
    for gap in lacking[1:]:
        if gap.from_s > end_s + TOUCHING_S:
            break
        end_s = gap.to_s
    return end_s


def gaps(events: Sequence[Event], from_s: float, to_s: float, step_s: float = 0.5) -> dict[str, list[Gap]]:
    """For each query, when it was not available, or not wholly: down, without output, or with a relative latency of 1.2 or more.

    Latencies are averages over two and a half epochs. A query of several partitions shows what those of them that are up have;
    its latency is then that of the epochs.
    """
    own, common, down = relative_latencies(events), _relative_epochs(events), _down(events)
    groups = max((event.key_groups for event in events if isinstance(event, JobStarted)), default=1)
    window_s = 2.5 * _epoch_length_s(events, from_s)
    moments: list[float] = np.arange(from_s, to_s, step_s).tolist()
    found: dict[str, list[Gap]] = {}
    for query in _queries(events):
        changes = down.get(query, [])
        points = own.get(query, []) if groups == 1 else common
        if changes and groups == 1:
            # What a query that went down showed before the failure says nothing of what it is like when it is back.
            points = [point for point in points if point.at_s >= from_s]
        is_late = _late(points, moments, window_s)
        lacking = [0, *(count for _, count in changes)]
        counts = [lacking[index] for index in np.searchsorted([at_s for at_s, _ in changes], moments, side="right")]
        shares = [1.0 if late or count >= groups else count / groups for late, count in zip(is_late, counts, strict=True)]
        found[query] = _merged(moments, shares, step_s, to_s)
    return found


def _late(points: metrics.Series, moments: Sequence[float], window_s: float) -> list[bool]:
    """For each moment, whether the average of what was shown shortly before is too high, or nothing was."""
    at_s = [point.at_s for point in points]
    sums = np.concatenate(([0.0], np.cumsum([point.value for point in points])))
    low = np.searchsorted(at_s, np.asarray(moments) - window_s, side="left")
    high = np.searchsorted(at_s, moments, side="right")
    return [bool(b <= a or (sums[b] - sums[a]) / (b - a) >= AVAILABLE_BELOW) for a, b in zip(low, high, strict=True)]


def _merged(moments: Iterable[float], shares: Iterable[float], step_s: float, to_s: float) -> list[Gap]:
    found: list[Gap] = []
    for moment, share in zip(map(float, moments), shares, strict=True):
        until = min(moment + step_s, to_s)
        if found and found[-1].share == share and abs(found[-1].to_s - moment) < step_s / 2:
            found[-1] = found[-1]._replace(to_s=until)
        elif share:
            found.append(Gap(moment, until, share))
    return found


def _down(events: Iterable[Event]) -> dict[str, list[tuple[float, int]]]:
    """For each query, how many of its partitions were down from when on."""
    down: dict[str, set[str]] = {}
    found: dict[str, list[tuple[float, int]]] = {}
    for event in events:
        if isinstance(event, QueriesChanged):
            for name in event.down:
                down.setdefault(query_of(name), set()).add(name)
            for name in event.back:
                down.setdefault(query_of(name), set()).discard(name)
            for query in {query_of(name) for name in (*event.down, *event.back)}:
                found.setdefault(query, []).append((event.at_s, len(down[query])))
    return found


def _relative_epochs(events: Sequence[Event]) -> metrics.Series:
    """The latency of live epochs over its median before the failure."""
    points = [metrics.Point(epoch.at_s, epoch.at_s - epoch.arrival_s) for epoch in metrics.finished_epochs(events)]
    began = failure_s(events)
    before = metrics.spread(point.value for point in points if began is None or point.at_s < began)
    if before is None or before.p50 <= 0:
        return []
    return [metrics.Point(point.at_s, point.value / before.p50) for point in points]


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


def epochs_ratio(events: Sequence[Event]) -> float | None:
    """How long the last epochs took over how long epochs took before the failure."""
    began = failure_s(events)
    epochs = metrics.finished_epochs(events)
    before = metrics.spread(epoch.took_s for epoch in epochs if began is not None and epoch.at_s < began)
    after = metrics.spread(epoch.took_s for epoch in epochs[-SETTLED_EPOCHS:] if began is not None and epoch.at_s >= began)
    return after.p50 / before.p50 if before is not None and after is not None and before.p50 > 0 else None


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


def available_queries(events: Sequence[Event], step_s: float = 1.0) -> list[tuple[float, float]]:
    """How many queries were available at each moment after the failure; one of which half was counts for half."""
    began = failure_s(events)
    if began is None:
        return []
    end_s = max(event.at_s for event in events)
    lacking = gaps(events, began, end_s)
    moments = np.arange(0.0, end_s - began, step_s)
    found = np.full(len(moments), float(len(lacking)))
    for gap in (gap for mine in lacking.values() for gap in mine):
        found[(moments >= gap.from_s - began) & (moments < gap.to_s - began)] -= gap.share
    return [(float(moment), round(float(count), 3)) for moment, count in zip(moments, found, strict=True)]


def node_changes(events: Iterable[Event]) -> list[tuple[float, int, str]]:
    """When nodes were lost (-1) and joined (+1)."""
    return [
        (event.at_s, -1 if isinstance(event, NodeLost) else 1, event.node)
        for event in events
        if isinstance(event, NodeLost | NodeJoined)
    ]
