"""What a failure cost, computed from events."""

import pytest
from msgspec.structs import replace

from resurge.telemetry import recovery_metrics
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


def epoch(number: int, at_s: float, **latency_s: float) -> EpochFinished:
    """A live epoch that these queries showed, so long after its rows had come."""
    return EpochFinished(at_s, number, 10, 0.5, at_s - 1.0, {}, latency_s, 0, 0, {}, 0, None, None, {})


def story() -> list[Event]:
    """Two queries a second apart; at 10 s nodes are killed, b is down until 16 s and slow until 18 s."""
    return [
        JobStarted(0.0, "job", 1, "simulator", ["n1", "n2"], {"a": 1, "b": 5}, 1),
        *(epoch(number, float(number), a=1.0, b=2.0) for number in range(1, 11)),
        NodesKilled(10.0, ["n2"]),
        NodeLost(10.5, "n2", 3, True),
        QueriesChanged(10.5, 10, ["b/0"], []),
        RecoveryPlanned(10.6, ["b/0"], {"b/0": "n1"}, 0.01),
        *(epoch(number, float(number), a=1.0) for number in range(11, 16)),
        QueriesChanged(16.0, 15, [], ["b/0"]),
        CatchUpFinished(16.0, 8, 15, 2.0, 1, 0, 0, {"b": [6.0, 5.0]}, 0.5),
        *(epoch(number, float(number), a=1.1, b=2.0) for number in range(16, 31)),
    ]


def test_times_count_from_the_kill_and_its_parts_are_told_apart() -> None:
    """Seen after half a second, planned a little later, back after six; restoring is not counted as catching up."""
    found = recovery_metrics.figures(story())
    assert (found.detected_after_s, found.planned_after_s) == (0.5, pytest.approx(0.6))
    assert (found.first_back_s, found.all_back_s) == (6.0, 6.0)
    assert (found.restore_s, found.catch_up_s) == (0.5, 1.5)
    assert found.queries_down == 1


def test_relative_latency_is_over_the_median_before_the_kill() -> None:
    """Also what a query showed late counts, and what it showed before."""
    found = recovery_metrics.relative_latencies(story())
    assert [point.value for point in found["b"] if point.at_s == 16.0] == [3.0, 2.5, 1.0]
    assert all(point.value == 1.0 for point in found["a"] if point.at_s < 16)


def test_a_query_that_is_back_is_available_only_when_its_latency_is_normal() -> None:
    """b is back at 16 s, but what it shows late is in the average of the next two and a half epochs."""
    [gap] = recovery_metrics.gaps(story(), 10.0, 30.0)["b"]
    assert gap.from_s == pytest.approx(10.5, abs=0.5)
    assert 18.0 <= gap.to_s <= 19.0
    found = recovery_metrics.figures(story())
    assert found.outage_area == pytest.approx(5 * (gap.to_s - gap.from_s))
    assert found.all_available_s == pytest.approx(gap.to_s - 10.0)


def test_a_query_of_which_a_part_is_down_is_available_in_part() -> None:
    """Of b's two partitions one is down from 10.5 to 16 s; all rows that come are shown as soon as ever."""
    told = [replace(event, key_groups=2) if isinstance(event, JobStarted) else event for event in story()]
    lacking = recovery_metrics.gaps(told, 10.0, 30.0)
    assert lacking["a"] == []
    [gap] = lacking["b"]
    assert gap == (pytest.approx(10.5), pytest.approx(16.0), 0.5)
    assert recovery_metrics.figures(told).outage_area == pytest.approx(5 * 0.5 * 5.5)
    assert dict(recovery_metrics.available_queries(told))[3.0] == 1.5


def test_queries_that_never_went_down_are_compared_with_themselves() -> None:
    """a is a tenth slower at most."""
    assert recovery_metrics.healthy_ratio(story()) == pytest.approx(1.1, abs=0.1)


def test_how_many_queries_are_available() -> None:
    """Both, then one, then both."""
    counts = dict(recovery_metrics.available_queries(story()))
    assert (counts[3.0], counts[15.0]) == (1, 2)


def test_the_latency_after_a_join_is_that_of_the_next_two_epochs() -> None:
    """A join at 20.5 s disturbs a, whose epochs 21 and 22 are slower; a query that comes back is not counted."""
    told = [event for event in story() if event.at_s < 20.6]
    told += [NodeJoined(20.5, "n3", 1.0), epoch(21, 21.0, a=1.4, b=2.0), epoch(22, 22.0, a=1.2, b=2.0), epoch(23, 23.0, a=9.0)]
    assert recovery_metrics.join_ratio(told) == pytest.approx(1.4)
    late = [*told, NodeJoined(22.5, "n4", 1.0)]
    assert recovery_metrics.join_ratio(late) == pytest.approx(1.4), "one epoch after a join says too little"


def test_epochs_at_the_end_are_compared_with_those_before_the_failure() -> None:
    """The median of what the last five took, over the median before."""
    told = [replace(event, took_s=2.0) if isinstance(event, EpochFinished) else event for event in story()]
    end_s = max(event.at_s for event in told)
    told += [replace(epoch(100 + turn, end_s + turn, a=1.0), took_s=3.0) for turn in range(1, 6)]
    assert recovery_metrics.epochs_ratio(told) == pytest.approx(1.5)
    assert recovery_metrics.epochs_ratio([]) is None
