"""In which slots a job runs, and how the slots of a node share its partitions: by key group or, if there are many operators, by operator.

Each call of an operator costs some milliseconds, however few rows it has. By key group, each slot calls each operator. Where a node
runs many operators for each of its slots, one slot has all key groups of an operator, and half or less of the calls are made.
"""

from collections.abc import Sequence
from itertools import groupby

from resurge.model.work import Job
from resurge.operators.program import Program
from resurge.protocols.slot_choice import SPREAD, observed
from resurge.runtime.driver.membership import Membership
from resurge.runtime.driver.slots import BY_KEY_GROUP, Chains, Slots
from resurge.runtime.worker.messages import JobPlan, SlotReport

MOST_UNEVEN = 1.5
"""By how much the busiest slot of a node may exceed the mean: one operator may need more than a slot can give."""
MOST_COUNTED = 2.0
"""A slot that merges a large state is the busiest by far for one epoch; that alone decides nothing."""
WEIGHT_OF_NEWEST = 0.1


class SlotSharing:
    """Learns from each live epoch whether it is small enough for one slot, and whether sharing by operator is even."""

    def __init__(self, membership: Membership, program: Program) -> None:
        self._membership = membership
        self._apart: Chains = {
            name: (number, len(chains)) for chains in program.chains() for number, mine in enumerate(chains) for name in mine
        }
        self._load = SPREAD
        self._uneven = 1.0

    def slots(self, job: Job) -> Slots:
        """The slots of a job."""
        is_small = self._load.is_small(len(job.epochs))
        return self._membership.slots(job.nodes, self._apart, is_small=is_small)

    def observe(self, plan: JobPlan, reports: Sequence[SlotReport], rows_read: int, state_bytes: int) -> None:
        """Take a live epoch into account."""
        self._load = observed(self._load, rows_read, sum(report.cpu_s for report in reports), state_bytes)
        if self._apart:
            self._uneven += WEIGHT_OF_NEWEST * (min(MOST_COUNTED, uneven(plan, reports)) - self._uneven)
            if self._uneven > MOST_UNEVEN:
                self._apart = BY_KEY_GROUP


def uneven(plan: JobPlan, reports: Sequence[SlotReport]) -> float:
    """The time of the busiest slot over the mean of its node, at the worst node; what is read counts for no slot."""
    took_s = [0.0] * len(plan.slots)
    for report in reports:
        took_s[report.slot] += report.cpu_s if report.level else 0.0
    worst = 1.0
    for _, mine in groupby(range(len(plan.slots)), key=lambda slot: plan.slots[slot].node):
        found = [took_s[slot] for slot in mine]
        mean_s = sum(found) / len(found)
        worst = max(worst, max(found) / mean_s if mean_s else 1.0)
    return worst
