"""Telemetry written down in a test: runs of a job, epoch by epoch."""

from collections.abc import Mapping, Sequence

from resurge.telemetry.events import (
    CheckpointFinished,
    EpochFinished,
    Event,
    JobStarted,
    JobStopped,
    OperatorDescription,
    TopologyDescribed,
)

START_S = 1_700_000_000.0


def started(
    at_s: float = START_S, *, resumed: int = 0, priorities: Mapping[str, int] | None = None, nodes: Sequence[str] = ("driver",)
) -> JobStarted:
    """A driver begins."""
    ranks = dict(priorities or {"busy": 5, "quiet": 1})
    return JobStarted(at_s, "trending", 1, "local[2]", list(nodes), ranks, 8, resumed, resumed)


def described() -> TopologyDescribed:
    """A source and one operator with state."""
    operators = {"rows": OperatorDescription("source", [], False), "count": OperatorDescription("window", ["rows"], True)}
    return TopologyDescribed(START_S, operators, {"busy": "count", "quiet": "count"})


def epoch(
    number: int,
    at_s: float | None = None,
    *,
    rows: int = 100,
    took_s: float = 0.5,
    latency_s: Mapping[str, float] | None = None,
    query_rows: Mapping[str, int] | None = None,
    lag: int | None = 0,
    replayed: bool = False,
) -> EpochFinished:
    """An epoch was committed, by default one per second."""
    latencies = {} if replayed else dict(latency_s if latency_s is not None else {"busy": 0.6, "quiet": 0.6})
    shown = dict(query_rows if query_rows is not None else {"busy": 10, "quiet": 2})
    moment = START_S + number if at_s is None else at_s
    return EpochFinished(moment, number, rows, took_s, moment - 0.6, shown, latencies, 50, 4000, {}, 0, lag, None, {}, replayed)


def checkpoint(number: int, at_s: float | None = None) -> CheckpointFinished:
    """A checkpoint right after its epoch."""
    return CheckpointFinished(START_S + number + 0.1 if at_s is None else at_s, number, 0.05)


def steady_run(epochs: int, checkpoint_every: int = 5) -> Sequence[Event]:
    """A run without incident."""
    events: list[Event] = [started()]
    for number in range(1, epochs + 1):
        events.append(epoch(number))
        if number % checkpoint_every == 0:
            events.append(checkpoint(number))
    return [*events, JobStopped(START_S + epochs + 0.2, epochs, "")]
