"""Plans for Spark: work shared out among slots, and the routes that lead to it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from resurge.model.names import NodeId
from resurge.model.work import Task
from resurge.operators.program import Program
from resurge.runtime.driver.versions import Versions
from resurge.runtime.worker.messages import LAST_EPOCH, CohortWork, EpochWork, JobPlan, Replay, SlotWork, Split
from resurge.storage.runs import SavedCohort


@dataclass(frozen=True)
class Slots:
    """The slots of a job: each belongs to a node, and each node's partitions are shared out among its slots."""

    nodes: tuple[NodeId, ...]
    cpu_share: Mapping[NodeId, float]

    def of(self, node: NodeId, key_group: int) -> int:
        """The slot that runs a key group on a node."""
        mine = self._slots[node]
        return mine[key_group % len(mine)]

    @cached_property
    def _slots(self) -> Mapping[NodeId, list[int]]:
        """The slots of each node; asked for every partition, so that looking at all slots each time would take long."""
        found: dict[NodeId, list[int]] = {}
        for index, owner in enumerate(self.nodes):
            found.setdefault(owner, []).append(index)
        return found


@dataclass(frozen=True)
class JobFrame:
    """What all jobs of a run share."""

    program: Program
    job: str
    local_folder: str
    durable_url: str
    local_limit_bytes: int | None = None


class PartitionWork(NamedTuple):
    """A partition that takes part in a job: the local segment with its state (None for the checkpoint's), and its epochs."""

    operator: str
    key_group: int
    segment: str | None = None
    cursor: int = 0
    until: int = LAST_EPOCH
    shown: int = 0
    shadow: bool = False


@dataclass(frozen=True)
class Work:
    """The variable part of a plan."""

    epoch: int
    epochs: Sequence[EpochWork]
    splits: Sequence[Split]
    partitions: Mapping[NodeId, list[PartitionWork]]
    replays: Mapping[NodeId, list[Replay]]
    buffered: Mapping[int, list[int]]
    checkpoint: bool = False


def partition_work(task: Task, versions: Versions) -> PartitionWork:
    """What a task does with its state: the version on its node, or the checkpoint's."""
    replica, partition = task.replica, task.partition
    known = versions.shadows if replica.is_shadow else versions.partitions
    version = known[partition] if replica.version is not None else None
    return PartitionWork(
        partition.operator,
        partition.key_group,
        version.segment if version else None,
        replica.cursor,
        task.until,
        task.published,
        replica.is_shadow,
    )


def cohorts(partitions: Iterable[PartitionWork], checkpoint: Mapping[str, list[SavedCohort]]) -> list[CohortWork]:
    """The partitions of a slot by operator, those together that have the same state file and take the same epochs."""
    found: dict[PartitionWork, list[int]] = {}
    for item in partitions:
        found.setdefault(item._replace(key_group=0), []).append(item.key_group)
    made = []
    for item, groups in found.items():
        mine = sorted(groups)
        saved = None
        if item.segment is None and checkpoint:
            saved = [each for each in checkpoint.get(item.operator, ()) if not set(mine).isdisjoint(each.key_groups)]
        made.append(CohortWork(item.operator, mine, item.segment, saved, item.cursor, item.until, item.shown, item.shadow))
    return made


def job_plan(
    frame: JobFrame,
    slots: Slots,
    work: Work,
    attempt: str,
    expired: Mapping[NodeId, list[str]],
    checkpoint: Mapping[str, list[SavedCohort]] = MappingProxyType({}),
) -> JobPlan:
    """The plan for Spark: work shared out among slots, and the routes that lead to it."""
    count = len(slots.nodes)
    mine: list[list[PartitionWork]] = [[] for _ in range(count)]
    groups = frame.program.topology.key_groups
    routes = {name: [-1] * groups for name in frame.program.partitioned_operators()}
    for node, items in work.partitions.items():
        for item in items:
            slot = slots.of(node, item.key_group)
            mine[slot].append(item)
            routes[item.operator][item.key_group] = slot
    replays: list[list[Replay]] = [[] for _ in range(count)]
    for node, wanted in work.replays.items():
        replays[slots.of(node, 0)] += wanted
    shares = shared_out(work.splits, count)
    first = {node: index for index, node in reversed(list(enumerate(slots.nodes)))}
    return JobPlan(
        frame.job,
        attempt,
        work.epoch,
        list(work.epochs),
        [
            SlotWork(
                node,
                shares[index],
                cohorts(mine[index], checkpoint),
                list(expired.get(node, [])) if first[node] == index else [],
                replays[index],
                slots.cpu_share.get(node, 1.0),
            )
            for index, node in enumerate(slots.nodes)
        ],
        routes,
        frame.local_folder,
        frame.durable_url,
        work.checkpoint,
        dict(work.buffered),
        frame.local_limit_bytes,
    )


def shared_out(splits: Iterable[Split], count: int) -> list[list[Split]]:
    """Splits in order over slots in order, so that the order of rows does not depend on the number of slots."""
    ordered = list(splits)
    shares: list[list[Split]] = [[] for _ in range(count)]
    for index, split in enumerate(ordered):
        shares[index * count // len(ordered)].append(split)
    return shares
