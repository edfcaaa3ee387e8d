"""Measured durations of epochs and catch-up steps, and whether steps reduce the lag. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from resurge.model.names import Partition
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.recovery import RecoveryState

SLACK_SHARE = 0.15
"""A live epoch may be late by this part of its latency. Queries count as available up to 1.2 times their usual latency."""
TWO_EPOCHS_SLACK = 1.5
"""Two epochs in a row may together be late by this many times the slack of one."""
LONG_STEP = 4
"""Steps of this many epochs or more tell what an epoch costs; shorter ones tell the overhead of a job."""
FACTORS = (0.25, 4.0)
"""Bounds of what is learnt: one measurement on a busy machine must not make steps look free, or impossible."""
MOST_STUCK_STEPS = 3
"""This many steps in a row without a smaller lag are not chance."""


@dataclass(frozen=True)
class StepCost:
    """The measured cost of steps: an overhead per job, and per epoch a multiple of what the partitions cost when live."""

    overhead_s: float
    factor: float = 1.0

    def after(self, took_s: float, epochs: int, work_s: float) -> "StepCost":
        """The cost after one more step, whose epochs take `work_s` each when live: short steps correct the overhead, long ones the factor."""
        error_s = took_s - self.overhead_s - self.factor * epochs * work_s
        if epochs < LONG_STEP or work_s <= 0:
            return replace(self, overhead_s=max(0.0, self.overhead_s + error_s / 2))
        least, most = FACTORS
        return replace(self, factor=min(most, max(least, self.factor + error_s / 2 / (epochs * work_s))))


@dataclass(frozen=True)
class Progress:
    """The lag of partitions when their last step began, and how many steps in a row did not reduce it."""

    lags: Mapping[Partition, int] = field(default_factory=dict)
    stuck_steps: int = 0

    def begun(self, step: CatchUp, recovery: RecoveryState) -> "Progress":
        """The progress after one more step began: the partition with the largest lag tells whether the last step reduced it."""
        lags = {partition: recovery.head - recovery.statuses[partition].cursor for partition in step.partitions}
        if not lags:
            return self
        farthest = max(lags, key=lambda partition: (lags[partition], partition))
        before = self.lags.get(farthest)
        stuck_steps = self.stuck_steps if before is None else self.stuck_steps + 1 if lags[farthest] >= before else 0
        return Progress({**self.lags, **lags}, stuck_steps)

    @property
    def is_stuck(self) -> bool:
        """True if the head moves on as fast as background steps advance, so that they would never meet it."""
        return self.stuck_steps >= MOST_STUCK_STEPS


@dataclass(frozen=True)
class StepTiming:
    """How often epochs are due, and what epochs and steps take.

    `usual_s` is the duration of epochs now, `normal_s` when every partition was live, `unit_s` how long a fully loaded node works
    for one. `is_concurrent` is False where jobs run one by one, and while background steps are stuck. `taken` counts the epochs
    that steps have taken since the last live epoch, `late_s` is how long after its time the live epoch begins that is due now,
    `over_s` how much longer than normal the last one took. `reading_s` is how long one node would read the input of one epoch,
    `before_s` how late the last live epoch began and by how much longer than normal it took.
    """

    interval_s: float
    usual_s: float
    normal_s: float
    cost: StepCost
    unit_s: float
    is_concurrent: bool
    taken: int = 0
    late_s: float = 0.0
    over_s: float = 0.0
    reading_s: float = 0.0
    before_s: float = 0.0

    @property
    def is_late(self) -> bool:
        """True if the live epoch that is due now has used its slack by waiting for a step."""
        return self.late_s > self.latency_slack_s / 2

    @property
    def was_late(self) -> bool:
        """True if the last live epoch was later than its slack: readers notice two of them in a row."""
        return self.before_s > self.latency_slack_s

    @property
    def waiting_slack_s(self) -> float:
        """How long a live epoch may wait for a step: less after a long one, because readers notice two of them in a row."""
        return max(0.0, min(self.latency_slack_s, TWO_EPOCHS_SLACK * self.latency_slack_s - self.over_s))

    @property
    def latency_slack_s(self) -> float:
        """How late a live epoch may be without an increase of latency that readers notice.

        A row waits half an interval, then for the job. While partitions are down, epochs are shorter than normal; half of the
        difference may be used.
        """
        return latency_slack_s(self.interval_s, self.usual_s, self.normal_s)


def latency_slack_s(interval_s: float, usual_s: float, normal_s: float) -> float:
    """The slack where epochs are due at this interval and take so long now, and when every partition is live."""
    return max(0.0, normal_s - usual_s) / 2 + SLACK_SHARE * (interval_s / 2 + usual_s)
