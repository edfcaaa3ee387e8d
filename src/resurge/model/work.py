"""What is run where: replicas of partitions, their tasks, and the jobs that carry them. Used on Spark and in the simulator."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

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
    `leaves` are primaries that change their node with this job, with the node that they leave: they begin with what was
    shipped, or with the checkpoint.
    """

    attempt: str
    epochs: tuple[int, ...]
    tasks: tuple[Task, ...]
    nodes: frozenset[NodeId]
    live_epoch: int | None = None
    is_checkpoint: bool = False
    replays: Mapping[Pair, range] = field(default_factory=dict)
    buffered_for: tuple[Partition, ...] = ()
    ships: tuple[Shipment, ...] = ()
    leaves: Mapping[Partition, NodeId] = field(default_factory=dict)

    @property
    def is_shipping_only(self) -> bool:
        """Whether it takes no epoch and saves nothing: it only brings states to other nodes."""
        return bool(self.ships) and not self.tasks

    def producers(self) -> dict[Partition, tuple[NodeId, range]]:
        """The primaries of the job: where each runs, and which epochs it takes."""
        last = self.epochs[-1] if self.epochs else 0
        return {
            task.partition: (task.node, range(task.replica.cursor + 1, min(task.until, last) + 1))
            for task in self.tasks
            if task.replica.role is Role.PRIMARY
        }
