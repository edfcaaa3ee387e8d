"""A runner without Spark: the tasks of a job run one after another in this process, on nodes that can be killed."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from resurge.errors import JobError
from resurge.model.names import NodeId
from resurge.runtime.driver.runner import Member, NodesLostError
from resurge.runtime.worker.level import JobCode, LevelTask
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.runtime.worker.tasks import decode_reports
from resurge.telemetry.events import Event


class InlineRunner:
    """Runs the tasks one after another in this process: the same code as on Spark, without Spark, for tests.

    Nodes can be killed and added; `before_task`, if set, is called before each task and may kill nodes in mid-job.
    """

    master = "inline"
    is_concurrent = False
    has_costly_slots = False

    def __init__(self, slots: int = 2, nodes: dict[str, Member] | None = None) -> None:
        self._members = {NodeId(name): member for name, member in (nodes or {"inline": Member(slots)}).items()}
        self._code: dict[str, JobCode] = {}
        self._folders: set[str] = set()
        self.before_task: Callable[[int, str], None] | None = None

    def listen(self, emit: Callable[[Event], None]) -> None:
        """It sees no events of its own."""

    def members(self) -> dict[NodeId, Member]:
        """The nodes that have not been killed."""
        return dict(self._members)

    def kill(self, *nodes: str) -> None:
        """A node goes, with all that is in its local store."""
        for node in nodes:
            self._members.pop(NodeId(node), None)
            for folder in self._folders:
                shutil.rmtree(Path(folder) / node, ignore_errors=True)

    def add(self, node: str, member: Member | None = None) -> None:
        """A node comes."""
        self._members[NodeId(node)] = member or Member()

    def install(self, job: str, code: JobCode) -> None:
        """Keep the code."""
        self._code[job] = code

    def run(self, plan: JobPlan) -> list[SlotReport]:
        """All slots of a level, then all slots of the next."""
        code = self._code[plan.job]
        self._folders.add(plan.local_root)
        inboxes: list[list[bytes]] = [[] for _ in plan.slots]
        for level in range(code.program.levels):
            sent = [self._task(code, plan, slot, level, inboxes[slot]) for slot in range(len(plan.slots))]
            if level == code.program.levels - 1:
                self._check(plan)
                return decode_reports(report for reports in sent for report in reports)
            inboxes = [[packets[slot] for packets in sent] for slot in range(len(plan.slots))]
        return []

    def _task(self, code: JobCode, plan: JobPlan, slot: int, level: int, packets: list[bytes]) -> list[bytes]:
        if self.before_task is not None:
            self.before_task(level, plan.slots[slot].node)
        self._check(plan)
        return LevelTask(code, plan, slot, level, packets).run()

    def _check(self, plan: JobPlan) -> None:
        lost = {NodeId(slot.node) for slot in plan.slots} - set(self._members)
        if lost:
            raise NodesLostError(lost)

    def session(self) -> NoReturn:
        """There is none."""
        raise JobError("the inline runner has no Spark session; run a job with a streaming DataFrame on Spark")

    def close(self) -> None:
        """Nothing to close."""
