"""What is run where: replicas of partitions, their tasks, and the jobs that carry them. Used on Spark and in the simulator."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import overload

from resurge.model.names import NodeId, Partition

LAST_EPOCH = 2**62
Pair = tuple[Partition, Partition]
"""A partition that produces output, and one that takes it."""


class Role(Enum):
    """What a replica is for."""

    PRIMARY = "primary"
    STANDBY = "standby"
    COPY = "copy"
    SHADOW = "shadow"


@dataclass(frozen=True)
class Replica:
    """One partition's state on one node: the last epoch that it has taken, and the attempt that wrote this version.

    Without a version the state is the last checkpoint's, and is restored by the first task that runs it.
    """

    partition: Partition
    node: NodeId
    cursor: int
    version: str | None = None
    role: Role = Role.PRIMARY

    @property
    def is_shadow(self) -> bool:
        """Whether it takes past epochs again only to feed others."""
        return self.role is Role.SHADOW


@dataclass(frozen=True)
class Task:
    """A replica takes the epochs after its cursor, up to `until`; output of epochs after `published` counts.

    What each epoch after `keep_after` changes is kept beside the state, so that it can be shipped to another node.
    """

    replica: Replica
    until: int = LAST_EPOCH
    published: int = LAST_EPOCH
    keep_after: int | None = None

    @property
    def partition(self) -> Partition:
        """Whose state it is."""
        return self.replica.partition

    @property
    def node(self) -> NodeId:
        """Where it runs."""
        return self.replica.node

    def takes(self, epoch: int) -> bool:
        """Whether it takes this epoch."""
        return self.replica.cursor < epoch <= self.until


@dataclass(frozen=True)
class Assignment:
    """The live partitions and the nodes that they are on, upstream first: the same value as long as nobody comes, goes or moves."""

    placed: Mapping[Partition, NodeId]

    @cached_property
    def partitions(self) -> frozenset[Partition]:
        """Who is live."""
        return frozenset(self.placed)

    @cached_property
    def nodes(self) -> frozenset[NodeId]:
        """Where they are."""
        return frozenset(self.placed.values())


class SteadyTasks(Sequence[Task]):
    """The tasks of a usual epoch: all of an assignment go on from one cursor, each with the version of one attempt.

    A task is made when somebody looks at it, which no usual epoch does.
    """

    def __init__(self, assignment: Assignment, cursor: int, version: str) -> None:
        self.assignment = assignment
        self.cursor = cursor
        self.version = version

    def __len__(self) -> int:
        return len(self.assignment.placed)

    @overload
    def __getitem__(self, index: int) -> Task: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...

    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        return self._made[index]

    def __iter__(self) -> Iterator[Task]:
        return iter(self._made)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._made == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def _made(self) -> tuple[Task, ...]:
        return tuple(
            Task(Replica(partition, node, self.cursor, self.version), published=self.cursor)
            for partition, node in self.assignment.placed.items()
        )


@dataclass(frozen=True)
class Shipment:
    """A primary's state goes to another node: this version of it, of this epoch.

    With a `base`, the target has what that attempt shipped, and only what it lacks is sent.
    """

    partition: Partition
    source: NodeId
    target: NodeId
    cursor: int
    version: str
    base: str | None = None


@dataclass(frozen=True)
class Job:
    """One attempt at some work: the epochs that are carried, and the tasks, upstream first, on the nodes that it may use.

    `replays` are the epochs that buffers send again, `buffered_for` the partitions for whom output is buffered. A job without
    epochs that is a checkpoint only saves state. `live_epoch` is the new epoch that it carries, if it carries one.
    `ships` are states that go to other nodes before any task begins; a job without epochs and tasks may only ship.
    Tasks of copies, with shadows that feed them, have a job of their own. `leaves` are primaries that change their node with this job, with the node that they leave: they begin with what was
    shipped, or with the checkpoint. `awaits` is the job that took the checkpoint which is being written: nodes report what is
    durable of it. A job without epochs ends when all of it is, unless it only `looks`.
    """

    attempt: str
    epochs: tuple[int, ...]
    tasks: Sequence[Task]
    nodes: frozenset[NodeId]
    live_epoch: int | None = None
    is_checkpoint: bool = False
    replays: Mapping[Pair, range] = field(default_factory=dict)
    buffered_for: tuple[Partition, ...] = ()
    ships: tuple[Shipment, ...] = ()
    leaves: Mapping[Partition, NodeId] = field(default_factory=dict)
    awaits: str | None = None
    looks: bool = False

    @property
    def steady(self) -> SteadyTasks | None:
        """Its tasks, if they are those of a usual epoch."""
        return self.tasks if isinstance(self.tasks, SteadyTasks) else None

    @property
    def task_nodes(self) -> frozenset[NodeId]:
        """The nodes that its tasks run on."""
        return nodes_of(self.tasks)

    @property
    def shadows(self) -> list[Task]:
        """The tasks of shadows."""
        return [] if self.steady is not None else [task for task in self.tasks if task.replica.is_shadow]

    @property
    def is_shipping_only(self) -> bool:
        """Whether it takes no epoch and saves nothing: it only brings states to other nodes."""
        return bool(self.ships) and not self.tasks

    @property
    def is_replay(self) -> bool:
        """Whether it only lets copies, and the shadows that feed them, take past epochs."""
        return bool(self.tasks) and self.steady is None and all(task.replica.role is not Role.PRIMARY for task in self.tasks)

    def producers(self) -> dict[Partition, tuple[NodeId, range]]:
        """The primaries of the job: where each runs, and which epochs it takes."""
        last = self.epochs[-1] if self.epochs else 0
        return {
            task.partition: (task.node, range(task.replica.cursor + 1, min(task.until, last) + 1))
            for task in self.tasks
            if task.replica.role is Role.PRIMARY
        }


def nodes_of(tasks: Sequence[Task]) -> frozenset[NodeId]:
    """The nodes that tasks run on."""
    return tasks.assignment.nodes if isinstance(tasks, SteadyTasks) else frozenset(task.node for task in tasks)
