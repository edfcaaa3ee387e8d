"""What the engine needs from whoever runs its jobs: nodes, and a way to run a plan on them."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from resurge.model.names import NodeId
from resurge.runtime.worker.level import JobCode, LevelTask
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.runtime.worker.tasks import decode_reports
from resurge.telemetry.events import Event


class Member(NamedTuple):
    """A node that is up and warm: how many tasks it runs at once, and which part of each core it is allowed."""

    cores: int = 1
    cpu_share: float = 1.0


class NodesLostError(Exception):
    """Nodes that a job was running on died; the attempt is void."""

    def __init__(self, nodes: Iterable[NodeId]) -> None:
        self.nodes = frozenset(nodes)
        super().__init__(f"nodes {', '.join(sorted(self.nodes))} were lost")


class Runner(Protocol):
    """Runs job plans; one slot is one task per level."""

    @property
    def master(self) -> str:
        """Where it runs."""

    @property
    def is_concurrent(self) -> bool:
        """Whether several jobs may run at the same time, on nodes of their own."""

    def listen(self, tell: Callable[[Event], None]) -> None:
        """Have events told that the runner itself sees, such as a node that is refused; from any thread."""

    def members(self) -> dict[NodeId, Member]:
        """The nodes that may be used now."""

    def install(self, job: str, code: JobCode) -> None:
        """Make a job's code known to the executors."""

    def run(self, plan: JobPlan) -> list[SlotReport]:
        """Run one job and return what every slot reported at every level, or raise NodesLostError."""

    def close(self) -> None:
        """Let go of what was opened."""


class InlineRunner:
    """Runs the tasks one after another in this process: the same code as on Spark, without Spark, for tests.

    Nodes can be killed and added; `before_task`, if set, is called before each task and may kill nodes in mid-job.
    """

    master = "inline"
    is_concurrent = False

    def __init__(self, slots: int = 2, nodes: dict[str, Member] | None = None) -> None:
        self._members = {NodeId(name): member for name, member in (nodes or {"inline": Member(slots)}).items()}
        self._code: dict[str, JobCode] = {}
        self._folders: set[str] = set()
        self.before_task: Callable[[int, str], None] | None = None

    def listen(self, tell: Callable[[Event], None]) -> None:
        """There is nothing to tell."""

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

    def close(self) -> None:
        """Nothing to close."""
