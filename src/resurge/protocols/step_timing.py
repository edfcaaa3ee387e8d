"""What is known of time when steps are chosen: what epochs and steps take, and whether steps gain on live epochs. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from resurge.model.names import Partition
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.recovery import Facts

SLACK_SHARE = 0.15
LONG_STEP = 4
FACTORS = (0.25, 4.0)
MOST_STUCK_STEPS = 3


@dataclass(frozen=True)
class StepCost:
    """What steps were seen to take: once for each job, and for each epoch as a multiple of what its partitions cost when live."""

    overhead_s: float
    factor: float = 1.0

    def after(self, took_s: float, epochs: int, work_s: float) -> "StepCost":
        """What is known after one more step, each of whose epochs cost so much when live: short ones tell of the overhead."""
        error_s = took_s - self.overhead_s - self.factor * epochs * work_s
        if epochs < LONG_STEP or work_s <= 0:
            return replace(self, overhead_s=max(0.0, self.overhead_s + error_s / 2))
        least, most = FACTORS
        return replace(self, factor=min(most, max(least, self.factor + error_s / 2 / (epochs * work_s))))


@dataclass(frozen=True)
class Progress:
    """Steps against live epochs: how far behind partitions were when their last step began, and how often in a row none had gained."""

    lags: Mapping[Partition, int] = field(default_factory=dict)
    stuck_steps: int = 0

    def begun(self, step: CatchUp, facts: Facts) -> "Progress":
        """The same after one more step has begun: those of it who are farthest behind show whether the last one gained."""
        lags = {partition: facts.head - facts.standing[partition].cursor for partition in step.partitions}
        if not lags:
            return self
        farthest = max(lags, key=lambda partition: (lags[partition], partition))
        before = self.lags.get(farthest)
        stuck_steps = self.stuck_steps if before is None else self.stuck_steps + 1 if lags[farthest] >= before else 0
        return Progress({**self.lags, **lags}, stuck_steps)

    @property
    def is_stuck(self) -> bool:
        """Whether live epochs go on as fast as steps that run meanwhile, so that none of these would ever meet the head."""
        return self.stuck_steps >= MOST_STUCK_STEPS


@dataclass(frozen=True)
class StepTiming:
    """What a driver knows of time: how often epochs are due, what they and steps usually take.

    `usual_s` is what epochs take now, `normal_s` what they took when every partition was live, `unit_s` how long a full node
    works for one. `is_concurrent` says whether a step can run while live epochs go on (where jobs can, and as long as steps gain
    on them), `taken` how many epochs steps have taken since the last live epoch.
    """

    interval_s: float
    usual_s: float
    normal_s: float
    cost: StepCost
    unit_s: float
    is_concurrent: bool
    taken: int = 0

    @property
    def latency_slack_s(self) -> float:
        """By how much a live epoch may be late without its readers noticing: rows wait for half an interval, then for its job.

        While much is down, epochs are shorter than readers are used to, and half of that may be used.
        """
        return max(0.0, self.normal_s - self.usual_s) / 2 + SLACK_SHARE * (self.interval_s / 2 + self.usual_s)
