"""What the engine needs from whoever runs its jobs: nodes, and a way to run a plan on them."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from resurge.model.names import NodeId
from resurge.runtime.worker.level import JobCode
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.telemetry.events import Event


class Member(NamedTuple):
    """A node that is up and warm: how many tasks it runs at once, which part of each core it is allowed, and what fails with it."""

    cores: int = 1
    cpu_share: float = 1.0
    domain: str = ""


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

    @property
    def has_costly_slots(self) -> bool:
        """Whether a task costs so much that a small epoch is done sooner in one slot than in all of them."""

    def listen(self, emit: Callable[[Event], None]) -> None:
        """Have events told that the runner itself sees, such as a node that is refused; from any thread."""

    def members(self) -> dict[NodeId, Member]:
        """The nodes that may be used now."""

    def install(self, job: str, code: JobCode) -> None:
        """Make a job's code known to the executors."""

    def run(self, plan: JobPlan) -> list[SlotReport]:
        """Run one job and return what every slot reported at every level, or raise NodesLostError."""

    def session(self) -> Any:
        """The Spark session, for sources that are streaming DataFrames."""

    def close(self) -> None:
        """Let go of what was opened."""
