"""What the engine needs from whoever runs its jobs: nodes, and a way to run a plan on them."""

from typing import Protocol

from resurge.runtime.worker.level import JobCode, LevelTask
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.runtime.worker.tasks import decode_reports


class Runner(Protocol):
    """Runs job plans; one slot is one task per level."""

    master: str

    def slots(self) -> list[str]:
        """The node of each slot."""

    def install(self, job: str, code: JobCode) -> None:
        """Make a job's code known to the executors."""

    def run(self, plan: JobPlan) -> list[SlotReport]:
        """Run one job and return what every slot reported at every level."""

    def close(self) -> None:
        """Let go of what was opened."""


class InlineRunner:
    """Runs the tasks one after another in this process: the same code as on Spark, without Spark, for tests."""

    master = "inline"

    def __init__(self, slots: int = 2) -> None:
        self._slots = slots
        self._code: dict[str, JobCode] = {}

    def slots(self) -> list[str]:
        """As many slots as asked for, all on one node."""
        return ["inline"] * self._slots

    def install(self, job: str, code: JobCode) -> None:
        """Keep the code."""
        self._code[job] = code

    def run(self, plan: JobPlan) -> list[SlotReport]:
        """All slots of a level, then all slots of the next."""
        code = self._code[plan.job]
        inboxes: list[list[bytes]] = [[] for _ in plan.slots]
        for level in range(code.program.levels):
            sent = [LevelTask(code, plan, slot, level, inboxes[slot]).run() for slot in range(len(plan.slots))]
            if level == code.program.levels - 1:
                return decode_reports(report for reports in sent for report in reports)
            inboxes = [[packets[slot] for packets in sent] for slot in range(len(plan.slots))]
        return []

    def close(self) -> None:
        """Nothing to close."""
