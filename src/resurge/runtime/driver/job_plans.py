"""From facts to job plans: a live epoch, a step of catching up, a checkpoint. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.operators.program import Program
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.recovery import Facts, Phase
from resurge.runtime.driver.versions import Produced, Version, Versions
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
    nodes: frozenset[NodeId] | None = None
    """Where it may run; None for all nodes."""

    def producers(self) -> dict[Partition, Produced]:
        """The partitions that take part, shadows apart: where, and which epochs they take."""
        last = self.epochs[-1].epoch if self.epochs else self.epoch
        return {
            Partition(item.operator, KeyGroup(item.key_group)): (node, range(item.cursor + 1, min(item.until, last) + 1))
            for node, items in self.partitions.items()
            for item in items
            if not item.shadow
        }


def live_work(
    facts: Facts, after: Facts, versions: Versions, epoch: EpochWork, splits: Sequence[Split], checkpoint: bool
) -> Work:
    """All partitions that are live take one epoch, and those at its head that become so."""
    partitions: dict[NodeId, list[PartitionWork]] = {}
    for partition in after.of_phase(Phase.LIVE):
        if facts.standing[partition].cursor == facts.head:
            _add(partitions, facts, versions, partition)
    return Work(epoch.epoch, [epoch], splits, partitions, {}, {}, checkpoint)


def buffered_groups(facts: Facts, program: Program, *, always: bool = False) -> dict[int, list[int]]:
    """For each exchange of a keyed operator, the key groups that some consumer which is not live will need; or all of them."""
    if not facts.is_buffering and not always:
        return {}
    found: dict[int, list[int]] = {}
    kept = [partition for partition, known in facts.standing.items() if always or known.phase is not Phase.LIVE]
    for exchange in program.exchanges:
        if program.owner(exchange.node) is None:
            continue
        groups = sorted({partition.key_group for partition in kept if partition.operator in exchange.consumers})
        if groups:
            found[exchange.number] = [int(group) for group in groups]
    return found


def catch_up_work(
    facts: Facts,
    after: Facts,
    versions: Versions,
    step: CatchUp,
    inputs: Sequence[tuple[EpochWork, list[Split]]],
) -> Work:
    """The partitions that catch up and the shadows that feed them; buffers feed what shadows do not.

    Those that are live afterwards may take the next epoch in the same job.
    """
    partitions: dict[NodeId, list[PartitionWork]] = {}
    spare = sorted(facts.capacity)
    for partition, taken in step.partitions.items():
        until = LAST_EPOCH if after.standing[partition].phase is Phase.LIVE else taken[-1]
        _add(partitions, facts, versions, partition, until)
    for index, (partition, taken) in enumerate(sorted(step.shadows.items())):
        # A shadow runs beside its partition, so that one route serves both where both are in one job.
        version = versions.shadows.get(partition) if partition in step.shadows_kept else None
        node = facts.standing[partition].node or (version.node if version else spare[index % len(spare)])
        partitions.setdefault(node, []).append(_shadow(facts, versions, partition, taken[-1], node, version))
    epochs = [epoch for epoch, _ in inputs]
    splits = [split for _, mine in inputs for split in mine]
    replays = versions.replays(step.buffered)
    # Others are not disturbed.
    return Work(epochs[-1].epoch, epochs, splits, partitions, replays, {}, nodes=frozenset((*partitions, *replays)))


def joined(behind: Work, live: Work) -> Work:
    """One job for a step of catching up and for the live epoch."""
    partitions = {
        node: [*behind.partitions.get(node, []), *live.partitions.get(node, [])]
        for node in dict.fromkeys((*behind.partitions, *live.partitions))
    }
    epochs, splits = [*behind.epochs, *live.epochs], [*behind.splits, *live.splits]
    return Work(live.epoch, epochs, splits, partitions, behind.replays, live.buffered)


def _add(
    partitions: dict[NodeId, list[PartitionWork]],
    facts: Facts,
    versions: Versions,
    partition: Partition,
    until: int = LAST_EPOCH,
) -> None:
    known = facts.standing[partition]
    if known.node is None:
        raise ValueError(f"{partition} has no node")
    version = versions.partitions.get(partition)
    segment = version.segment if version else None
    partitions.setdefault(known.node, []).append(
        PartitionWork(partition.operator, partition.key_group, segment, known.cursor, until, known.shown)
    )


def _shadow(
    facts: Facts, versions: Versions, partition: Partition, until: int, node: NodeId, version: Version | None
) -> PartitionWork:
    if version is not None and version.node != node:
        version = None
    return PartitionWork(
        partition.operator,
        partition.key_group,
        version.segment if version else None,
        version.cursor if version else facts.checkpoint,
        until,
        LAST_EPOCH,
        True,
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
