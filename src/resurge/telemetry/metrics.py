"""Metrics as pure functions of telemetry: everything that a view, a report or an experiment shows is computed here.

What failures cost (relative latency, availability, outage) is in `recovery_metrics`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from resurge.telemetry.events import (
    CatchUpFinished,
    CheckpointFinished,
    EpochFinished,
    Event,
    JobStarted,
    JobStopped,
    LoadMeasured,
    NodeNamed,
    PartitionsGivenUp,
    Warned,
)
from resurge.telemetry.wording import given_up_in_words


class Point(NamedTuple):
    """A value at a moment."""

    at_s: float
    value: float


class Band(NamedTuple):
    """Median and 99th percentile at a moment."""

    at_s: float
    p50: float
    p99: float


class Spread(NamedTuple):
    """Median and 99th percentile of some values, and how many there were."""

    p50: float
    p99: float
    values: int


Series = Sequence[Point]


@dataclass(frozen=True)
class QuerySummary:
    """What a query did in a run."""

    query: str
    priority: int
    rows: int
    latency_s: Spread | None


@dataclass(frozen=True)
class Snapshot:
    """Where a job stands at a moment; what is not known yet is None."""

    job: str
    epoch: int
    rows: int
    rows_per_s: float | None
    latency_s: Spread | None
    lag_rows: int | None
    row_limit: int | None
    state_rows: int
    state_bytes: int
    checkpoint_epoch: int | None
    checkpoint_age_s: float | None
    checkpoint_absent: int
    kept_since: int | None
    late_rows: int
    bad_rows: int
    queries: tuple[QuerySummary, ...]


def finished_epochs(events: Iterable[Event], *, replayed: bool = False) -> list[EpochFinished]:
    """The epochs in the order in which they finished; those run again after a restart only when asked for."""
    return [event for event in events if isinstance(event, EpochFinished) and (replayed or not event.replayed)]


def priorities(events: Iterable[Event]) -> dict[str, int]:
    """Every query's priority, as the last driver that ran it declared."""
    found: dict[str, int] = {}
    for event in events:
        if isinstance(event, JobStarted):
            found |= event.priorities
    return found


def spread(values: Iterable[float]) -> Spread | None:
    """Median and 99th percentile, or None of no values.

    >>> spread([1.0, 2.0, 3.0])
    Spread(p50=2.0, p99=2.98, values=3)
    """
    known = list(values)
    if not known:
        return None
    p50, p99 = np.quantile(known, (0.5, 0.99))
    return Spread(float(p50), float(p99), len(known))


def latency(events: Iterable[Event], *, caught_up: bool = False) -> dict[str, Series]:
    """Per query, how long after its arrival each epoch's output was shown, in seconds.

    The steady state leaves out epochs that were run again, and those that a query showed only when it had caught up after a
    failure; the latter are part of what its readers saw, and are included when asked for.
    """
    found: dict[str, list[Point]] = {}
    for event in events:
        if isinstance(event, EpochFinished) and not event.replayed:
            for query, seconds in event.latency_s.items():
                found.setdefault(query, []).append(Point(event.at_s, seconds))
        elif isinstance(event, CatchUpFinished) and caught_up:
            for query, shown in event.latencies_s.items():
                found.setdefault(query, []).extend(Point(event.at_s, seconds) for seconds in shown)
    return dict(found)


def latency_spread(events: Iterable[Event]) -> dict[str, Spread]:
    """Per query, median and 99th percentile over its published rows of the time from arrival to publication.

    What was published while catching up counts too: a reader of the sink has waited for it. An epoch in which a query
    published no row counts as one.
    """
    seconds: dict[str, list[float]] = {}
    weights: dict[str, list[int]] = {}
    arrivals: dict[int, float] = {}

    def note(query: str, latency_s: float, rows: int) -> None:
        seconds.setdefault(query, []).append(latency_s)
        weights.setdefault(query, []).append(max(1, rows))

    for event in events:
        if isinstance(event, EpochFinished) and not event.replayed:
            arrivals[event.epoch] = event.arrival_s
            for query, latency_s in event.latency_s.items():
                note(query, latency_s, event.query_rows.get(query, 0))
        elif isinstance(event, CatchUpFinished):
            for query, epochs in event.published.items():
                for epoch, rows in epochs.items():
                    if epoch in arrivals:
                        note(query, event.at_s - arrivals[epoch], rows)
    return {query: weighted_spread(found, weights[query]) for query, found in seconds.items()}


def weighted_spread(values: Sequence[float], weights: Sequence[int]) -> Spread:
    """Median and 99th percentile of values that count as often as their weights say.

    >>> weighted_spread([1.0, 5.0], [98, 2])
    Spread(p50=1.0, p99=5.0, values=100)
    """
    order = np.argsort(values)
    reached = np.cumsum(np.asarray(weights)[order])
    p50, p99 = (float(values[order[np.searchsorted(reached, share * reached[-1])]]) for share in (0.5, 0.99))
    return Spread(p50, p99, int(reached[-1]))


def query_rows(events: Iterable[Event]) -> dict[str, int]:
    """Rows published by each query, in step and while catching up; an epoch that was run again counts once."""
    live: dict[tuple[str, int], int] = {}
    totals: dict[str, int] = {}
    for event in events:
        if isinstance(event, EpochFinished):
            for query, rows in event.query_rows.items():
                live[query, event.epoch] = max(rows, live.get((query, event.epoch), 0))
        elif isinstance(event, CatchUpFinished):
            for query, epochs in event.published.items():
                totals[query] = totals.get(query, 0) + sum(epochs.values())
    for (query, _), rows in live.items():
        totals[query] = totals.get(query, 0) + rows
    return totals


def rows_read(events: Iterable[Event]) -> int:
    """Input rows; an epoch that was run again counts once."""
    return sum({epoch.epoch: epoch.rows_read for epoch in finished_epochs(events, replayed=True)}.values())


def throughput(events: Iterable[Event]) -> Series:
    """Input rows per second as they went by: since the epoch before, or since the driver started."""
    points = []
    previous_s: float | None = None
    for event in events:
        if isinstance(event, JobStarted):
            previous_s = event.at_s
        if not isinstance(event, EpochFinished):
            continue
        since_s = event.took_s if previous_s is None else max(event.at_s - previous_s, event.took_s)
        previous_s = event.at_s
        if since_s > 0 and not event.replayed:
            points.append(Point(event.at_s, event.rows_read / since_s))
    return points


def pace(events: Iterable[Event]) -> Series:
    """Input rows per second of work: how fast each epoch was while it ran."""
    return [Point(e.at_s, e.rows_read / e.took_s) for e in finished_epochs(events) if e.took_s > 0 and e.rows_read]


def steady_rows_per_s(events: Iterable[Event]) -> float | None:
    """The steady pace: the median over the last half of the epochs, which warming up does not touch."""
    points = pace(events)
    half = points[len(points) // 2 :]
    return float(np.median([point.value for point in half])) if half else None


def lag(events: Iterable[Event]) -> Series:
    """Rows that waited after each epoch, where the sources could tell."""
    return [Point(e.at_s, e.lag_rows) for e in finished_epochs(events, replayed=True) if e.lag_rows is not None]


def state_bytes(events: Iterable[Event]) -> Series:
    """State held after each epoch."""
    return [Point(e.at_s, e.state_bytes) for e in finished_epochs(events, replayed=True)]


def utilisation(events: Iterable[Event]) -> dict[str, Series]:
    """For each node, as the user calls it, what it used of what it may spend; nothing while it drains."""
    names: dict[str, str] = {}
    found: dict[str, list[Point]] = {}
    for event in events:
        if isinstance(event, NodeNamed):
            names[event.node] = event.name
        elif isinstance(event, LoadMeasured):
            for node, load in event.nodes.items():
                if load.capacity > 0:
                    found.setdefault(node, []).append(Point(event.at_s, load.cpu_s_per_s / load.capacity))
    return {
        names.get(node, f"node {node}"): points
        for node, points in sorted(found.items(), key=lambda item: (len(item[0]), item[0]))
    }


def spread_over_time(series: Mapping[str, Series]) -> tuple[Series, Series, Series]:
    """The lowest, the mean and the highest of several series at each moment that one of them has."""
    values: dict[float, list[float]] = {}
    for points in series.values():
        for point in points:
            values.setdefault(point.at_s, []).append(point.value)
    moments = sorted(values)
    low = [Point(at_s, min(values[at_s])) for at_s in moments]
    mean = [Point(at_s, float(np.mean(values[at_s]))) for at_s in moments]
    return low, mean, [Point(at_s, max(values[at_s])) for at_s in moments]


def checkpoint_times(events: Iterable[Event]) -> Series:
    """When global checkpoints were published, and of which epoch they are."""
    return [Point(event.at_s, event.epoch) for event in events if isinstance(event, CheckpointFinished)]


def checkpoint_age_s(events: Iterable[Event], now_s: float) -> float | None:
    """How old the last global checkpoint is; None if there is none."""
    times = checkpoint_times(events)
    return max(0.0, now_s - times[-1].at_s) if times else None


def warnings(events: Iterable[Event]) -> list[Warned]:
    """What went wrong and was dealt with, and what partitions skipped."""
    found: list[Warned] = []
    for event in events:
        if isinstance(event, PartitionsGivenUp):
            found.append(Warned(event.at_s, given_up_in_words(event)))
        elif isinstance(event, Warned):
            found.append(event)
    return found


def rolling(points: Series, length: int) -> list[Band]:
    """Median and 99th percentile of the last `length` points, at every point."""
    values = np.array([point.value for point in points], dtype=np.float64)
    bands = []
    for index, point in enumerate(points[: length - 1]):
        bands.append(Band(point.at_s, *map(float, np.quantile(values[: index + 1], (0.5, 0.99)))))
    if len(points) >= length:
        low, high = np.quantile(np.lib.stride_tricks.sliding_window_view(values, length), (0.5, 0.99), axis=1)
        bands += [
            Band(point.at_s, float(p50), float(p99)) for point, p50, p99 in zip(points[length - 1 :], low, high, strict=True)
        ]
    return bands


def summaries(events: Sequence[Event]) -> list[QuerySummary]:
    """All queries, the most valuable first."""
    ranks, rows, latencies = priorities(events), query_rows(events), latency_spread(events)
    names = sorted({*ranks, *rows}, key=lambda name: (-ranks.get(name, 1), name))
    return [QuerySummary(name, ranks.get(name, 1), rows.get(name, 0), latencies.get(name)) for name in names]


def snapshot(events: Sequence[Event], now_s: float) -> Snapshot:
    """Where the job stands after these events."""
    started = [event for event in events if isinstance(event, JobStarted)]
    epochs = finished_epochs(events, replayed=True)
    newest = epochs[-1] if epochs else None
    rates = throughput(events)
    checkpoints = checkpoint_times(events)
    newest_saved = next((event for event in reversed(events) if isinstance(event, CheckpointFinished)), None)
    restored_epoch = started[-1].checkpoint_epoch if started else 0
    return Snapshot(
        job=started[-1].job if started else "",
        epoch=newest.epoch if newest else restored_epoch,
        rows=rows_read(events),
        rows_per_s=rates[-1].value if rates else None,
        latency_s=spread(point.value for points in latency(events).values() for point in points),
        lag_rows=newest.lag_rows if newest else None,
        row_limit=newest.row_limit if newest else None,
        state_rows=newest.state_rows if newest else 0,
        state_bytes=newest.state_bytes if newest else 0,
        checkpoint_epoch=int(checkpoints[-1].value) if checkpoints else restored_epoch or None,
        checkpoint_age_s=checkpoint_age_s(events, now_s),
        checkpoint_absent=newest_saved.absent if newest_saved else 0,
        kept_since=newest_saved.kept_since if newest_saved else None,
        late_rows=sum(sum(epoch.late_rows.values()) for epoch in finished_epochs(events)),
        bad_rows=sum(epoch.bad_rows for epoch in finished_epochs(events)),
        queries=tuple(summaries(events)),
    )


class RunningTime:
    """Moments as seconds since the job first started. A pause that the user made by stopping is cut out; an outage is not."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.restarts_s: list[float] = []
        self._from_s: list[float] = []
        self._shift_s: list[float] = []
        stopped_s: float | None = None
        for event in events:
            if not self._from_s:
                self._add(event.at_s, event.at_s)
            elif isinstance(event, JobStarted):
                pause_s = max(0.0, event.at_s - stopped_s) if stopped_s is not None else 0.0
                self._add(event.at_s, self._shift_s[-1] + pause_s)
                self.restarts_s.append(self.at(event.at_s))
            stopped_s = event.at_s if isinstance(event, JobStopped) and not event.reason else None

    def at(self, moment_s: float) -> float:
        """The running time at a moment."""
        if not self._from_s:
            return 0.0
        index = max(0, bisect_right(self._from_s, moment_s) - 1)
        return moment_s - self._shift_s[index]

    def _add(self, from_s: float, shift_s: float) -> None:
        self._from_s.append(from_s)
        self._shift_s.append(shift_s)
