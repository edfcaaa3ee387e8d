"""From facts to job plans: a live epoch, a step of catching up, a checkpoint. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from resurge.model.names import NodeId, Partition
from resurge.operators.program import Program
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.recovery import Facts, Phase
from resurge.runtime.driver.versions import Version, Versions
from resurge.runtime.worker.messages import LAST_EPOCH, EpochWork, JobPlan, PartitionWork, Replay, SlotWork, Split


@dataclass(frozen=True)
class Slots:
    """The slots of a job: each belongs to a node, and each node's partitions are shared out among its slots."""

    nodes: tuple[NodeId, ...]
    cpu_share: Mapping[NodeId, float]

    def of(self, node: NodeId, key_group: int) -> int:
        """The slot that runs a key group on a node."""
        mine = [index for index, owner in enumerate(self.nodes) if owner == node]
        return mine[key_group % len(mine)]


@dataclass(frozen=True)
class JobFrame:
    """What all jobs of a run share."""

    program: Program
    job: str
    local_folder: str
    durable_url: str


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


def live_work(
    facts: Facts, versions: Versions, program: Program, epoch: EpochWork, splits: Sequence[Split], checkpoint: bool
) -> Work:
    """All live partitions take one epoch; what others will need is buffered."""
    partitions: dict[NodeId, list[PartitionWork]] = {}
    for partition in facts.of_phase(Phase.LIVE):
        _add(partitions, facts, versions, partition)
    return Work(epoch.epoch, [epoch], splits, partitions, {}, buffered_groups(facts, program), checkpoint)


def buffered_groups(facts: Facts, program: Program) -> dict[int, list[int]]:
    """For each exchange of a keyed operator, the key groups that some consumer which is not live will need."""
    if not facts.is_buffering:
        return {}
    found: dict[int, list[int]] = {}
    absent = [partition for partition, known in facts.standing.items() if known.phase is not Phase.LIVE]
    for exchange in program.exchanges:
        if program.owner(exchange.node) is None:
            continue
        groups = sorted({partition.key_group for partition in absent if partition.operator in exchange.consumers})
        if groups:
            found[exchange.number] = [int(group) for group in groups]
    return found


def catch_up_work(
    facts: Facts, versions: Versions, step: CatchUp, epochs: Sequence[EpochWork], splits: Sequence[Split], spare: Sequence[NodeId]
) -> Work:
    """The partitions that catch up and the shadows that feed them; buffers feed what shadows do not."""
    partitions: dict[NodeId, list[PartitionWork]] = {}
    for partition in step.partitions:
        _add(partitions, facts, versions, partition)
    for index, (partition, until) in enumerate(sorted(step.shadows_until.items())):
        known = facts.standing[partition]
        # A shadow runs beside its partition if that catches up too, so that one route serves both.
        version = versions.shadows.get(partition) if partition in step.shadows_kept else None
        if known.phase is Phase.CATCHING_UP and known.node is not None:
            node = known.node
        else:
            node = version.node if version else spare[index % len(spare)]
        partitions.setdefault(node, []).append(_shadow(facts, versions, partition, until, node, version))
    replays = versions.replays(step.first, step.last, _wanted(facts, step))
    return Work(step.last, epochs, splits, partitions, replays, {})


def _wanted(facts: Facts, step: CatchUp) -> dict[tuple[Partition, Partition], range]:
    """The epochs that buffers provide: after the receiver's cursor and the shadow's end, while the sender is ahead."""
    wanted = {}
    for above, below in step.buffered:
        sender, receiver = facts.standing[above], facts.standing[below]
        begin = max(receiver.cursor, step.shadows_until.get(above, 0)) + 1
        end = sender.cursor if sender.phase is Phase.CATCHING_UP else facts.head
        wanted[above, below] = range(begin, end + 1)
    return wanted


def _add(partitions: dict[NodeId, list[PartitionWork]], facts: Facts, versions: Versions, partition: Partition) -> None:
    known = facts.standing[partition]
    if known.node is None:
        raise ValueError(f"{partition} has no node")
    version = versions.partitions.get(partition)
    restore = None if version else versions.checkpoint.get(str(partition))
    partitions.setdefault(known.node, []).append(
        PartitionWork(
            partition.operator,
            partition.key_group,
            version.segment if version else None,
            restore,
            known.cursor,
            LAST_EPOCH,
            known.shown,
        )
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
        None if version else versions.checkpoint.get(str(partition)),
        version.cursor if version else facts.checkpoint,
        until,
        LAST_EPOCH,
        True,
    )


def job_plan(frame: JobFrame, slots: Slots, work: Work, attempt: str, expired: Mapping[NodeId, list[str]]) -> JobPlan:
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
                mine[index],
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
    )


def shared_out(splits: Iterable[Split], count: int) -> list[list[Split]]:
    """Splits in order over slots in order, so that the order of rows does not depend on the number of slots."""
    ordered = list(splits)
    shares: list[list[Split]] = [[] for _ in range(count)]
    for index, split in enumerate(ordered):
        shares[index * count // len(ordered)].append(split)
    return shares
