"""The layout that usual epochs have in common: made once after each change of who is where, and named by every job from then on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from resurge.model.work import Assignment, Job
from resurge.runtime.driver.slots import Slots
from resurge.runtime.worker.messages import CohortLayout, JobPlan, Layout, SlotReport
from resurge.storage import paths


@dataclass(frozen=True)
class Usual:
    """The layout of the last usual epoch: for whom and for which slots it holds, and the attempt whose versions the slots have.

    `reports` are those of that attempt.
    """

    assignment: Assignment
    slots: Slots
    layout: Layout
    epoch: int
    attempt: str
    reports: Sequence[SlotReport]

    def serves(self, job: Job, slots: Slots) -> bool:
        """Whether a job goes on from it: the same partitions on the same slots, with the versions of its attempt."""
        tasks = job.steady
        return (
            tasks is not None
            and tasks.assignment is self.assignment
            and (tasks.cursor, tasks.version) == (self.epoch, self.attempt)
            and slots.nodes == self.slots.nodes
            and slots.chains is self.slots.chains
        )


def usual_after(known: Usual | None, job: Job, plan: JobPlan, reports: Sequence[SlotReport], slots: Slots) -> Usual | None:
    """The layout from which the next usual epoch can go on, once a job has succeeded."""
    if job.steady is None:
        return known
    if known is not None and plan.layout is known.layout:
        return replace(known, epoch=plan.epoch, attempt=plan.attempt, reports=reports)
    layout = _layout(plan, reports)
    if sum(len(cohort.key_groups) for mine in layout.cohorts for cohort in mine) != len(job.steady):
        return None
    return Usual(job.steady.assignment, slots, layout, plan.epoch, plan.attempt, reports)


def _layout(plan: JobPlan, reports: Sequence[SlotReport]) -> Layout:
    """What the slots of a job have: they say so themselves, after key groups have met that were apart before."""
    cohorts: list[list[CohortLayout]] = [[] for _ in plan.slots]
    for report in reports:
        if report.segment == paths.slot_segment(plan.epoch, plan.attempt, report.level, report.slot):
            cohorts[report.slot] += [
                CohortLayout(cohort.operator, report.level, cohort.key_groups)
                for cohort in report.cohorts
                if not (cohort.shadow or cohort.copy)
            ]
    return Layout(plan.attempt, cohorts, plan.routes)
