"""Plans for Spark: work shared out among slots, and the routes that lead to it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from resurge.errors import ProtocolError
from resurge.model.names import NodeId
from resurge.model.work import Role, Shipment, Task
from resurge.operators.program import Program
from resurge.runtime.driver.layouts import Usual
from resurge.runtime.driver.slots import Slots
from resurge.runtime.driver.versions import Versions
from resurge.runtime.worker.messages import LAST_EPOCH, CohortWork, EpochWork, JobPlan, Replay, Sending, SlotWork, Split
from resurge.storage.runs import SavedCohort

Checkpoints = Mapping[int, Mapping[str, list[SavedCohort]]]
"""By epoch and operator, the states that checkpoints have."""


@dataclass(frozen=True)
class JobFrame:
    """What all jobs of a run share."""

    program: Program
    job: str
    local_folder: str
    durable_url: str
    local_limit_bytes: int | None = None


class Origin(NamedTuple):
    """Where a state comes from that arrives with a job: the node, the segment there, and the epoch of what the receiver has."""

    node: NodeId
    segment: str
    since: int | None = None


class PartitionWork(NamedTuple):
    """A partition that takes part in a job: the local segment with its state (None for the checkpoint's), and its epochs.

    With an origin, its state arrives from there; a copy is only kept.
    """

    operator: str
    key_group: int
    segment: str | None = None
    cursor: int = 0
    until: int = LAST_EPOCH
    shown: int = 0
    shadow: bool = False
    keep_after: int | None = None
    origin: Origin | None = None
    copy: bool = False
    was_copy: bool = False


@dataclass(frozen=True)
class Work:
    """The variable part of a plan; one that goes on from the last usual epoch has no partitions of its own."""

    epoch: int
    epochs: Sequence[EpochWork]
    splits: Sequence[Split]
    partitions: Mapping[NodeId, list[PartitionWork]]
    replays: Mapping[NodeId, list[Replay]]
    buffered: Mapping[int, list[int]]
    checkpoint: bool = False
    usual: Usual | None = None


def partition_work(task: Task, versions: Versions) -> PartitionWork:
    """What a task does with its state: the version on its node, or the checkpoint's."""
    replica, partition = task.replica, task.partition
    version = None if replica.version is None else versions.of(replica)
    return PartitionWork(
        partition.operator,
        partition.key_group,
        version.segment if version else None,
        replica.cursor,
        task.until,
        task.published,
        replica.is_shadow,
        task.keep_after,
        copy=replica.role is Role.COPY,
        was_copy=version is not None and (version.was_copy or replica.role is Role.COPY),
    )


def arriving_work(ship: Shipment, task: Task | None, versions: Versions) -> PartitionWork:
    """A partition whose state arrives with the job: it takes epochs if there is a task for it, else it is a copy."""
    partition = ship.partition
    copy = versions.copies.get((partition, ship.target)) if ship.base is not None else None
    origin = Origin(ship.source, versions.partitions[partition].segment, copy.cursor if copy is not None else None)
    return PartitionWork(
        partition.operator,
        partition.key_group,
        copy.segment if copy is not None else None,
        ship.cursor,
        task.until if task is not None else ship.cursor,
        task.published if task is not None else LAST_EPOCH,
        keep_after=task.keep_after if task is not None else None,
        origin=origin,
        copy=task is None,
    )


def cohorts(partitions: Iterable[PartitionWork], checkpoints: Checkpoints) -> list[CohortWork]:
    """The partitions of a slot by operator, those together that have the same state file and take the same epochs."""
    found: dict[tuple[object, ...], tuple[PartitionWork, list[int]]] = {}
    for item in partitions:
        # All but the key group; asked for every partition in every epoch.
        alike = (item.operator, item[2:])
        if alike not in found:
            found[alike] = item, []
        found[alike][1].append(item.key_group)
    made = []
    for item, groups in found.values():
        mine = sorted(groups)
        is_restored = item.segment is None and item.origin is None and item.cursor > 0
        saved = _saved(item, mine, checkpoints) if is_restored else None
        at = (item.origin.since if item.origin else None) or 0
        made.append(
            CohortWork(
                item.operator,
                mine,
                item.segment,
                saved,
                item.cursor,
                item.until,
                item.shown,
                item.shadow,
                item.keep_after,
                item.origin is not None,
                at,
                item.copy,
                item.was_copy,
            )
        )
    return made


def sendings(slots: Slots, mine: Sequence[Sequence[PartitionWork]]) -> dict[int, list[Sending]]:
    """By slot, what it sends to the slots whose partitions arrive: one shipment for each cohort there."""
    found: dict[int, list[Sending]] = {}
    for target, items in enumerate(mine):
        arriving: dict[PartitionWork, list[int]] = {}
        for item in items:
            if item.origin is not None:
                arriving.setdefault(item._replace(key_group=0), []).append(item.key_group)
        for item, groups in arriving.items():
            if item.origin is not None:
                sending = Sending(target, item.operator, sorted(groups), item.origin.segment, item.cursor, item.origin.since)
                found.setdefault(slots.first(item.origin.node), []).append(sending)
    return found


def _saved(item: PartitionWork, groups: list[int], checkpoints: Checkpoints) -> list[SavedCohort]:
    """The states of a checkpoint with which key groups begin that have no version."""
    saved = [
        each for each in checkpoints.get(item.cursor, {}).get(item.operator, ()) if not set(groups).isdisjoint(each.key_groups)
    ]
    missing = sorted(set(groups).difference(*(each.key_groups for each in saved)))
    if missing:
        raise ProtocolError(
            f"key groups {missing} of {item.operator!r} are to be restored at epoch {item.cursor}; expected a checkpoint that has them"
        )
    return saved


def job_plan(
    frame: JobFrame,
    slots: Slots,
    work: Work,
    attempt: str,
    expired: Mapping[NodeId, list[str]],
    checkpoints: Checkpoints = MappingProxyType({}),
) -> JobPlan:
    """The plan for Spark: work shared out among slots, and the routes that lead to it."""
    count = len(slots.nodes)
    mine: list[list[PartitionWork]] = [[] for _ in range(count)]
    groups, usual = frame.program.topology.key_groups, work.usual
    routes = {} if usual else {name: [-1] * groups for name in frame.program.partitioned_operators()}
    for node, items in work.partitions.items():
        for item in items:
            slot = slots.of(node, item.operator, item.key_group)
            mine[slot].append(item)
            routes[item.operator][item.key_group] = slot
    replays: list[list[Replay]] = [[] for _ in range(count)]
    for node, wanted in work.replays.items():
        replays[slots.first(node)] += wanted
    shares = shared_out(work.splits, count)
    sends = sendings(slots, mine)
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
                cohorts(mine[index], checkpoints),
                list(expired.get(node, [])) if first[node] == index else [],
                replays[index],
                slots.cpu_share.get(node, 1.0),
                sends.get(index, []),
            )
            for index, node in enumerate(slots.nodes)
        ],
        routes,
        frame.local_folder,
        frame.durable_url,
        work.checkpoint,
        dict(work.buffered),
        frame.local_limit_bytes,
        usual.layout if usual else None,
        (usual.epoch, usual.attempt) if usual else None,
    )


def shared_out(splits: Iterable[Split], count: int) -> list[list[Split]]:
    """Splits in order over slots in order, so that the order of rows does not depend on the number of slots."""
    ordered = list(splits)
    shares: list[list[Split]] = [[] for _ in range(count)]
    for index, split in enumerate(ordered):
        shares[index * count // len(ordered)].append(split)
    return shares
