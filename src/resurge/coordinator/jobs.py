"""Jobs made from what is known: a live epoch, a catch-up step, both at once, a checkpoint. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import ceil
from types import MappingProxyType

from resurge.coordinator import newest
from resurge.coordinator.state import JobState, Taken
from resurge.model.names import NodeId, Partition
from resurge.model.requests import CPAL, PRECOPY
from resurge.model.work import LAST_EPOCH, Job, Replica, Role, Shipment, SteadyTasks, Task, nodes_of
from resurge.protocols import recovery as transitions
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.recovery import Phase, RecoveryState

SPARE_CHANGES = 8
MOST_CHANGES = 250
"""More epochs between two refreshes of a copy are not kept apart: its whole state is then less than all of their changes."""


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
    tasks = None if step is not None or moves else _steady_tasks(state)
    if tasks is None:
        lagging = _step_tasks(state, step, after) if step is not None else ()
        tasks = (*lagging, *_live_tasks(state, after, step.partitions if step is not None else {}, moves))
    epochs = (*(step.epochs if step is not None else ()), epoch)
    replays = step.buffered if step is not None else {}
    ships = shipments(state, moves)
    nodes = _undisturbed(state, tasks, step) | frozenset(ship.source for ship in ships)
    leaves = {partition: node for partition in moves if (node := state.recovery.statuses[partition].node) is not None}
    awaits = state.taken.attempt if state.taken is not None else None
    buffered_for = _buffered_for(state, after)
    return Job(attempt, epochs, tasks, nodes, epoch, is_checkpoint, replays, buffered_for, ships, leaves, awaits)


def _steady_tasks(state: JobState) -> Sequence[Task] | None:
    """The tasks of a usual epoch, without a look at each partition: all have the version of one attempt, and keep nothing for others."""
    recovery = state.recovery
    version = newest.shared(state.versions, recovery.live)
    if version is None or state.migration is not None or state.copying.targets:
        return None
    if recovery.roster.published_ahead > recovery.head:
        return None
    return SteadyTasks(recovery.roster.assignment, recovery.head, version)


def _live_tasks(
    state: JobState, after: RecoveryState, stepping: Collection[Partition], moves: Mapping[Partition, NodeId]
) -> tuple[Task, ...]:
    kept = _kept_from(state)
    return tuple(
        _keeping(_primary(state, partition, node=moves.get(partition)), kept)
        for partition in after.of_phase(Phase.LIVE)
        if partition not in stepping
    )


def _kept_from(state: JobState) -> dict[tuple[str, NodeId], int]:
    """By operator and node, the epoch from which on changes are kept: key groups that are saved together keep them together."""
    migration, found = state.migration, dict[tuple[str, NodeId], int]()
    for partition, target in migration.moves.items() if migration is not None and migration.how in (PRECOPY, CPAL) else ():
        node, copy = state.recovery.statuses[partition].node, state.copies.get((partition, target))
        if migration is not None and node is not None and node != target:
            since = migration.kept_from if copy is None else copy.cursor
            found[partition.operator, node] = min(since, found.get((partition.operator, node), since))
    for partition, targets in state.copying.targets.items():
        node = state.recovery.statuses[partition].node
        for target in targets:
            copy = state.copies.get((partition, target))
            since = max(state.copying.kept_from if copy is None else copy.cursor, state.recovery.head - _most_changes(state))
            if node is not None:
                found[partition.operator, node] = min(since, found.get((partition.operator, node), since))
    return found


def _most_changes(state: JobState) -> int:
    """For how many epochs changes are kept for copies: those that are not refreshed for longer get everything again."""
    settings = state.settings
    between = settings.copying.every or settings.checkpoint_interval
    if settings.checkpoint_interval_s and not settings.copying.every:
        epoch_s = max(settings.interval_s, state.rhythm.attempt_s)
        between = ceil(min(MOST_CHANGES, settings.checkpoint_interval_s / epoch_s)) if epoch_s else MOST_CHANGES
    return 2 * between + SPARE_CHANGES


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


def step_job(state: JobState, attempt: str, step: CatchUp, readers: Collection[NodeId] = ()) -> Job:
    """The partitions that catch up and the shadows that feed them; buffers feed what shadows do not.

    Other nodes may help to read the sources; beyond that they are not disturbed.
    """
    after = _after(state.recovery, step)
    tasks = _step_tasks(state, step, after)
    nodes = frozenset((*(task.node for task in tasks), *_senders(state.recovery, step), *readers))
    return Job(attempt, tuple(step.epochs), tasks, nodes, replays=step.buffered, buffered_for=_buffered_for(state, after))


def saving_job(state: JobState, attempt: str) -> Job:
    """A job without epochs, which only saves every partition's state."""
    tasks = tuple(_primary(state, partition) for partition in state.recovery.of_phase(Phase.LIVE))
    return Job(attempt, (), tasks, frozenset(state.recovery.capacity), is_checkpoint=True)


def awaiting_job(taken: Taken, state: JobState, attempt: str, *, looks: bool = False) -> Job:
    """A job without epochs, which ends when the checkpoint that is being written is durable, or only looks whether it is."""
    nodes = taken.nodes & state.recovery.capacity.keys() or frozenset(state.recovery.capacity)
    return Job(attempt, (), (), nodes, awaits=taken.attempt, looks=looks)


def is_void(state: JobState, job: Job) -> bool:
    """Whether a node of a job, or the state that one of its tasks began with, has been lost since it was submitted."""
    statuses = state.recovery.statuses
    if job.is_shipping_only and any(statuses[ship.partition].node != ship.source for ship in job.ships):
        return True
    if job.is_replay and not state.recovery.all_live:
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
    kept = _kept_from(state)
    tasks = (
        _keeping(_primary(state, partition, LAST_EPOCH if after.statuses[partition].phase is Phase.LIVE else taken[-1]), kept)
        for partition, taken in step.partitions.items()
    )
    return (*tasks, *_shadow_tasks(state, step))


def replay_job(state: JobState, attempt: str, step: CatchUp, copies: Mapping[Partition, Replica]) -> Job:
    """Copies take past epochs while their primaries go on; shadows and buffers feed them. They show nothing."""
    mine = (Task(copies[partition], taken[-1], LAST_EPOCH) for partition, taken in step.partitions.items())
    tasks = (*mine, *_shadow_tasks(state, step))
    nodes = frozenset((*(task.node for task in tasks), *_senders(state.recovery, step)))
    return Job(attempt, tuple(step.epochs), tasks, nodes, replays=step.buffered)


def _shadow_tasks(state: JobState, step: CatchUp) -> list[Task]:
    recovery, spare, tasks = state.recovery, sorted(state.recovery.capacity), list[Task]()
    for index, (partition, taken) in enumerate(sorted(step.shadows.items())):
        # A shadow runs beside its partition, so that one route serves both where both are in one job.
        kept = state.shadows.get(partition) if partition in step.shadows_kept else None
        node = recovery.statuses[partition].node or (kept.node if kept else spare[index % len(spare)])
        if kept is None or kept.node != node:
            kept = Replica(partition, node, taken.start - 1, None, Role.SHADOW)
        tasks.append(Task(kept, taken[-1]))
    return tasks


def _senders(recovery: RecoveryState, step: CatchUp) -> set[NodeId]:
    nodes = (recovery.statuses[above].node for above, _ in step.buffered)
    return {node for node in nodes if node is not None}


def _undisturbed(state: JobState, tasks: Sequence[Task], step: CatchUp | None) -> frozenset[NodeId]:
    """The nodes of a live epoch: not those whose cores are taken by a background job, unless they are needed."""
    occupied = state.recovery.roster.occupied
    # An empty node that drains may go at any moment: nobody should wait for it then.
    everywhere = frozenset(
        node for node in state.recovery.capacity if node not in state.draining or node in occupied
    ) or frozenset(state.recovery.capacity)
    taken = frozenset(node for running in state.background for node in running.job.task_nodes)
    needed = nodes_of(tasks) | (_senders(state.recovery, step) if step is not None else frozenset())
    return everywhere - (taken - needed) or everywhere


def _buffered_for(state: JobState, after: RecoveryState) -> tuple[Partition, ...]:
    """For whom output is buffered: all that are not live after the job; or everyone, if that was chosen."""
    if state.settings.always_buffers:
        return tuple(after.graph.upstream)
    return tuple(after.of_phase(Phase.DOWN, Phase.STALLED, Phase.CATCHING_UP)) if after.is_buffering else ()


def shadows_after(shadows: Mapping[Partition, Replica], job: Job) -> Mapping[Partition, Replica]:
    """The shadows that exist once a job has been adopted."""
    new = {task.partition: Replica(task.partition, task.node, task.until, job.attempt, Role.SHADOW) for task in job.shadows}
    return {**shadows, **new} if new else shadows
