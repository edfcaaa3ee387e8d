"""Moves that begin with a copy or a checkpoint on the target and take the epochs since (ELASTIC, algorithms 1 and 2, at epoch grain).

With `cpa` the partition goes on from there at once, and pauses until it has caught up: a recovery without a loss. With `cpal` a copy on
the target takes the past epochs in background jobs while the primary goes on, and the switch ships what is left.
"""

from collections.abc import Mapping
from dataclasses import replace

from resurge.coordinator.jobs import replay_job
from resurge.coordinator.policies import copies
from resurge.coordinator.policies.submitting import admits, submitted
from resurge.coordinator.state import JobState, Migration
from resurge.model.names import NodeId, Partition
from resurge.model.work import Job, Replica, Role
from resurge.protocols import moving
from resurge.protocols.catch_up import next_step
from resurge.protocols.recovery import PartitionStatus, Phase

NEAR_EPOCHS = 2
"""A copy that is no further behind its primary switches: the rest is shipped."""
MOST_REPLAYS = 64
"""After so many jobs a copy that is still behind switches all the same."""


def relocated(state: JobState, moves: Mapping[Partition, NodeId], now_s: float) -> JobState:
    """Partitions go on from copies on their new nodes, or from their checkpoints, and catch up as after a loss."""
    before, usable = state.recovery, copies.usable(state)
    begins = {
        partition: (node, usable.get((partition, node), before.restore_point(partition))) for partition, node in moves.items()
    }
    state = copies.left_behind(state, moves)
    state = replace(
        state,
        recovery=moving.relocated(before, begins),
        versions={partition: version for partition, version in state.versions.items() if partition not in moves},
        buffers=state.buffers.without_producers(moves),
    )
    state = copies.promoted(state, before, now_s)
    return state.emitting(*state.emitted.changed(now_s, before, state.recovery))


def behind(state: JobState, migration: Migration) -> list[Partition]:
    """The partitions whose copies on their targets are missing or too old to switch: the switch would ship all that they lack."""
    statuses, head = state.recovery.statuses, state.recovery.head
    return [
        partition
        for partition, target in migration.moves.items()
        if statuses[partition].node != target
        and state.versions.get(partition) is not None
        and migration.rounds.get(partition, 0) < MOST_REPLAYS
        and ((copy := state.copies.get((partition, target))) is None or head - copy.cursor > NEAR_EPOCHS)
    ]


def outdated(state: JobState, migration: Migration, partitions: list[Partition]) -> list[Partition]:
    """Those whose copies are older than their checkpoints: what they lack is shipped, which is less than to restore a checkpoint."""
    copies_of = {partition: state.copies.get((partition, migration.moves[partition])) for partition in partitions}
    return [p for p, copy in copies_of.items() if copy is not None and copy.cursor < state.recovery.restore_point(p)]


def _begins(state: JobState, partition: Partition, target: NodeId) -> Replica:
    """What the target goes on from: its copy or, where that is older than the checkpoint or missing, the checkpoint."""
    copy, saved = state.copies.get((partition, target)), state.recovery.restore_point(partition)
    return copy if copy is not None and copy.cursor >= saved else Replica(partition, target, saved, None, Role.COPY)


def replay(state: JobState, migration: Migration, partitions: list[Partition], now_s: float) -> JobState:
    """Let the copies take some past epochs, in a job of their own."""
    recovery = state.recovery
    begins = {partition: _begins(state, partition, migration.moves[partition]) for partition in partitions}
    catching = {
        partition: PartitionStatus(Phase.CATCHING_UP, copy.node, copy.cursor, recovery.head) for partition, copy in begins.items()
    }
    as_if = replace(recovery, statuses={**recovery.statuses, **catching})
    shadows = {partition: shadow.cursor for partition, shadow in state.shadows.items()}
    step = next_step(as_if, state.buffers.coverage(recovery.graph.upstream), shadows, among=partitions)
    if step is None:
        return state
    named, attempt = state.new_attempt()
    job = replay_job(state, attempt, step, begins)
    return submitted(named, now_s, job, is_foreground=not state.settings.is_concurrent) if admits(state, job) else state


def replayed(state: JobState, job: Job) -> JobState:
    """Copies have taken epochs; those that nobody waits for any more are forgotten."""
    migration = state.migration
    if migration is None:
        return state
    mine = [task for task in job.tasks if task.replica.role is Role.COPY]
    wanted = [task for task in mine if migration.moves.get(task.partition) == task.node]
    new = {(task.partition, task.node): Replica(task.partition, task.node, task.until, job.attempt, Role.COPY) for task in wanted}
    rounds = {**migration.rounds, **{task.partition: migration.rounds.get(task.partition, 0) + 1 for task in wanted}}
    return replace(state, copies={**state.copies, **new}, migration=replace(migration, rounds=rounds))


def failed(state: JobState, job: Job) -> JobState:
    """A copy that could not be read or go on is not used again."""
    gone = {(task.partition, task.node) for task in job.tasks}
    return replace(state, copies={place: copy for place, copy in state.copies.items() if place not in gone})


def ended(state: JobState) -> JobState:
    """A migration has ended: nobody needs the shadows that fed its copies."""
    return state if state.is_catching_up or not state.shadows else replace(state, shadows={})
