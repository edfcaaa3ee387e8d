"""Nodes that are as fast as the experiment needs: their share of a core is set from what the job was measured to cost."""

from dataclasses import dataclass, field

from resurge.model.names import NodeId
from resurge.runtime.driver.runner import Member
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.worker.level import JobCode
from resurge.runtime.worker.messages import JobPlan, SlotReport

UTILISATION = 0.55
MEASURED_JOBS = 6
IGNORED_JOBS = 2


@dataclass
class CalibratedRunner:
    """Runs on whole cores at first; once the job's cost is known, every node gets the share that makes it busy for a set part.

    So "two of four nodes are too few for everything" is true on a fast and on a slow machine alike.
    """

    inner: SparkRunner
    nodes: int
    interval_s: float
    utilisation: float = UTILISATION
    share: float = 1.0
    seen: list[float] = field(default_factory=list)

    @property
    def master(self) -> str:
        """Where it runs."""
        return self.inner.master

    def members(self) -> dict[NodeId, Member]:
        """The nodes, each with the same share."""
        return {node: Member(member.cores, self.share) for node, member in self.inner.members().items()}

    def install(self, job: str, code: JobCode) -> None:
        """As the runner inside."""
        self.inner.install(job, code)

    def run(self, plan: JobPlan) -> list[SlotReport]:
        """Run, and measure while there is something to learn."""
        reports = self.inner.run(plan)
        if self.share == 1.0 and plan.epochs:
            self.seen.append(sum(report.cpu_s for report in reports))
            if len(self.seen) >= MEASURED_JOBS:
                settled = sorted(self.seen[IGNORED_JOBS:])
                cost = settled[len(settled) // 2] / self.interval_s
                self.share = min(1.0, cost / self.nodes / self.utilisation)
        return reports

    def session(self) -> object:
        """The session inside."""
        return self.inner.session()

    def close(self) -> None:
        """As the runner inside."""
        self.inner.close()


def calibrated(
    runner: SparkRunner, nodes: int = 4, interval_s: float = 2.0, utilisation: float = UTILISATION
) -> CalibratedRunner:
    """A runner that sets its nodes' speed after a few epochs."""
    return CalibratedRunner(runner, nodes, interval_s, utilisation)
