"""Jobs made from what is known: a live epoch, a catch-up step, both at once, a checkpoint. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from resurge.coordinator.state import JobState
from resurge.model.names import NodeId, Partition
from resurge.model.requests import PRECOPY
from resurge.model.work import LAST_EPOCH, Job, Replica, Role, Shipment, Task
from resurge.protocols import recovery as transitions
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.recovery import Phase, RecoveryState


def live_job(
    state: JobState,
    attempt: str,
    epoch: int,
    step: CatchUp | None,
    *,
    is_checkpoint: bool,
    moves: Mapping[Partition, NodeId] = MappingProxyType({}),
) -> Job:
    """All partitions that are live take one epoch, and with them those that a step brings to the head.

    Partitions that move take it on their new nodes.
    """
    after = _after(state.recovery, step)
    stepping = step.partitions if step is not None else {}
    kept = _kept_from(state)
    live = tuple(
        _keeping(_primary(state, partition, node=moves.get(partition)), kept)
        for partition in after.of_phase(Phase.LIVE)
        if partition not in stepping
    )
    lagging = _step_tasks(state, step, after) if step is not None else ()
    epochs = (*(step.epochs if step is not None else ()), epoch)
    tasks = (*lagging, *live)
    replays = step.buffered if step is not None else {}
    ships = shipments(state, moves)
    nodes = _undisturbed(state, tasks, step) | frozenset(ship.source for ship in ships)
    leaves = {partition: node for partition in moves if (node := state.recovery.statuses[partition].node) is not None}
    return Job(attempt, epochs, tasks, nodes, epoch, is_checkpoint, replays, _buffered_for(state, after), ships, leaves)


def _kept_from(state: JobState) -> dict[tuple[str, NodeId], int]:
    """By operator and node, the epoch from which on changes are kept: key groups that are saved together keep them together."""
    migration, found = state.migration, dict[tuple[str, NodeId], int]()
    for partition, target in migration.moves.items() if migration is not None and migration.how == PRECOPY else ():
        node, copy = state.recovery.statuses[partition].node, state.copies.get((partition, target))
        if migration is not None and node is not None and node != target:
            since = migration.kept_from if copy is None else copy.cursor
            found[partition.operator, node] = min(since, found.get((partition.operator, node), since))
    return found


def _keeping(task: Task, kept: Mapping[tuple[str, NodeId], int]) -> Task:
    since = kept.get((task.partition.operator, task.node))
    return task if since is None else replace(task, keep_after=since)


def shipping_job(state: JobState, attempt: str, moves: Mapping[Partition, NodeId]) -> Job:
    """States go to other nodes while their primaries go on."""
    ships = shipments(state, moves)
    return Job(attempt, (), (), frozenset(node for ship in ships for node in (ship.source, ship.target)), ships=ships)


def shipments(state: JobState, moves: Mapping[Partition, NodeId]) -> tuple[Shipment, ...]:
    """What is sent of partitions that move; nothing of those whose state is a checkpoint's, which any node can restore."""
    found = []
    for partition, target in moves.items():
        known, version = state.recovery.statuses[partition], state.versions.get(partition)
        if known.node is None or version is None:
            continue
        copy = state.copies.get((partition, target))
        found.append(Shipment(partition, known.node, target, known.cursor, version, copy.version if copy else None))
    return tuple(found)


def step_job(state: JobState, attempt: str, step: CatchUp) -> Job:
    """The partitions that catch up and the shadows that feed them; buffers feed what shadows do not. Others are not disturbed."""
    after = _after(state.recovery, step)
    tasks = _step_tasks(state, step, after)
    nodes = frozenset((*(task.node for task in tasks), *_senders(state.recovery, step)))
    return Job(attempt, tuple(step.epochs), tasks, nodes, replays=step.buffered, buffered_for=_buffered_for(state, after))


def saving_job(state: JobState, attempt: str) -> Job:
    """A job without epochs, which only saves every partition's state."""
    tasks = tuple(_primary(state, partition) for partition in state.recovery.of_phase(Phase.LIVE))
    return Job(attempt, (), tasks, frozenset(state.recovery.capacity), is_checkpoint=True)


def source_job(state: JobState, attempt: str, epoch: int) -> Job:
    """A past epoch for the queries of the sources themselves, whose output may not have been published."""
    return Job(attempt, (epoch,), (), frozenset(state.recovery.capacity))


def is_void(state: JobState, job: Job) -> bool:
    """Whether a node of a job, or the state that one of its tasks began with, has been lost since it was submitted."""
    statuses = state.recovery.statuses
    if job.is_shipping_only and any(statuses[ship.partition].node != ship.source for ship in job.ships):
        return True
    return not state.recovery.capacity.keys() >= job.nodes or any(
        (known := statuses[task.partition]).phase not in (Phase.LIVE, Phase.CATCHING_UP)
        or (known.node, known.cursor) != (job.leaves.get(task.partition, task.node), task.replica.cursor)
        or state.versions.get(task.partition) != task.replica.version
        for task in job.tasks
        if task.replica.role is Role.PRIMARY
    )


def _after(recovery: RecoveryState, step: CatchUp | None) -> RecoveryState:
    return recovery if step is None else transitions.advanced(recovery, step.cursors())


def _primary(state: JobState, partition: Partition, until: int = LAST_EPOCH, node: NodeId | None = None) -> Task:
    known = state.recovery.statuses[partition]
    if known.node is None:
        raise ValueError(f"partition {partition} has no node; expected one that is up")
    return Task(Replica(partition, node or known.node, known.cursor, state.versions.get(partition)), until, known.published)


def _step_tasks(state: JobState, step: CatchUp, after: RecoveryState) -> tuple[Task, ...]:
    """Those that are live afterwards may take the next epoch in the same job."""
    recovery, spare = state.recovery, sorted(state.recovery.capacity)
    tasks = [
        _primary(state, partition, LAST_EPOCH if after.statuses[partition].phase is Phase.LIVE else taken[-1])
        for partition, taken in step.partitions.items()
    ]
    for index, (partition, taken) in enumerate(sorted(step.shadows.items())):
        # A shadow runs beside its partition, so that one route serves both where both are in one job.
        kept = state.shadows.get(partition) if partition in step.shadows_kept else None
        node = recovery.statuses[partition].node or (kept.node if kept else spare[index % len(spare)])
        if kept is None or kept.node != node:
            kept = Replica(partition, node, taken.start - 1, None, Role.SHADOW)
        tasks.append(Task(kept, taken[-1]))
    return tuple(tasks)


def _senders(recovery: RecoveryState, step: CatchUp) -> set[NodeId]:
    nodes = (recovery.statuses[above].node for above, _ in step.buffered)
    return {node for node in nodes if node is not None}


def _undisturbed(state: JobState, tasks: tuple[Task, ...], step: CatchUp | None) -> frozenset[NodeId]:
    """The nodes of a live epoch: not those whose cores are taken by a background job, unless they are needed."""
    occupied = {known.node for known in state.recovery.statuses.values()}
    # An empty node that drains may go at any moment: nobody should wait for it then.
    everywhere = frozenset(
        node for node in state.recovery.capacity if node not in state.draining or node in occupied
    ) or frozenset(state.recovery.capacity)
    taken = {task.node for flight in state.background for task in flight.job.tasks}
    needed = {task.node for task in tasks} | (_senders(state.recovery, step) if step is not None else set())
    return everywhere - (taken - needed) or everywhere


def _buffered_for(state: JobState, after: RecoveryState) -> tuple[Partition, ...]:
    """For whom output is buffered: all that are not live after the job; or everyone, if that was chosen."""
    if state.settings.always_buffers:
        return tuple(after.graph.upstream)
    return tuple(after.of_phase(Phase.DOWN, Phase.STALLED, Phase.CATCHING_UP)) if after.is_buffering else ()


def shadows_after(shadows: Mapping[Partition, Replica], job: Job) -> Mapping[Partition, Replica]:
    """The shadows that exist once a job has been adopted."""
    new = {
        task.partition: Replica(task.partition, task.node, task.until, job.attempt, Role.SHADOW)
        for task in job.tasks
        if task.replica.is_shadow
    }
    return {**shadows, **new} if new else shadows
