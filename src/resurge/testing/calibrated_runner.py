"""Nodes that are as fast as the experiment needs: their share of a core is set from what the job was measured to cost."""

from collections.abc import Callable
from dataclasses import dataclass, field

from resurge.model.names import NodeId
from resurge.runtime.driver.runner import Member
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.worker.level import JobCode
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.telemetry.events import Event

MEASURED_JOBS = 8
IGNORED_JOBS = 4


@dataclass
class CalibratedRunner:
    """Runs on whole cores at first; once the job's cost is known, every node gets the share that makes it busy for a set part.

    So "two of four nodes are too few for everything" is true on a fast and on a slow machine alike.
    """

    inner: SparkRunner
    nodes: int
    interval_s: float
    utilisation: float
    measured_jobs: int | None = MEASURED_JOBS
    share: float = 1.0
    seen: list[float] = field(default_factory=list)

    @property
    def master(self) -> str:
        """Where it runs."""
        return self.inner.master

    @property
    def is_concurrent(self) -> bool:
        """As the runner inside."""
        return self.inner.is_concurrent

    @property
    def has_costly_slots(self) -> bool:
        """As the runner inside."""
        return self.inner.has_costly_slots

    def listen(self, emit: Callable[[Event], None]) -> None:
        """As the runner inside."""
        self.inner.listen(emit)

    def members(self) -> dict[NodeId, Member]:
        """The nodes, each with the same share."""
        return {node: Member(member.cores, self.share) for node, member in self.inner.members().items()}

    def install(self, job: str, code: JobCode) -> None:
        """As the runner inside."""
        self.inner.install(job, code)

    def run(self, plan: JobPlan) -> list[SlotReport]:
        """Run, and measure while there is something to learn."""
        reports = self.inner.run(plan)
        if self.measured_jobs is not None and len(self.seen) < self.measured_jobs and plan.epochs:
            self.seen.append(sum(report.cpu_s for report in reports))
            if len(self.seen) == self.measured_jobs:
                settled = sorted(self.seen[IGNORED_JOBS:])
                self.calibrate(settled[len(settled) // 2] / self.interval_s)
        return reports

    def calibrate(self, cost: float) -> None:
        """Give every node the share that makes it busy for the set part, if the job costs so many seconds per second."""
        self.share = min(1.0, cost / self.nodes / self.utilisation)

    def session(self) -> object:
        """The session inside."""
        return self.inner.session()

    def close(self) -> None:
        """As the runner inside."""
        self.inner.close()
