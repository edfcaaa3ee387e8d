"""Copies of states on other nodes: where they lie, when they are refreshed, and who goes on from them.

A copy is shipped as a move's state is: whole, then what epochs changed. It takes no epochs. Losing one costs nothing but time: it is
placed anew, and a refresh that fails leaves the older version.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from resurge.coordinator.commands import ChangeRoles, Emit, PlanCopies
from resurge.coordinator.copy_placement import check_problem, is_apart, sampled
from resurge.coordinator.copying import Copying
from resurge.coordinator.inputs import CopiesPlanned, JobResult
from resurge.coordinator.jobs import shipping_job
from resurge.coordinator.policies.submitting import admits, submitted
from resurge.coordinator.state import JobState
from resurge.model.names import NodeId, Partition
from resurge.model.work import Job, Replica, Role
from resurge.protocols import recovery as transitions
from resurge.protocols.recovery import RecoveryState
from resurge.telemetry import events

MOST_FIRST_COPIES = 16
MOST_BYTES = 8_000_000
"""What one background job ships, as far as sizes are known: it holds a core of each of its nodes, so it should be short."""
REST_EPOCHS = 5
"""How long nothing is shipped after a shipment has failed."""

Place = tuple[Partition, NodeId]


def proposed(state: JobState, now_s: float) -> JobState:
    """Look once per epoch, ask the planner if what it knew has changed, ship what is due; the same state if nothing is to be done."""
    copying, recovery = state.copying, state.recovery
    if not state.settings.copying.most or state.migration is not None or not recovery.all_live:
        return state
    if copying.head != recovery.head:
        state = replace(state, copying=sampled(copying, recovery))
        if state.copying.question is None and (problem := check_problem(state)) is not None:
            return _asked(state, problem)
        return state
    is_resting = recovery.head < copying.not_before_epoch
    if copying.is_settled or is_resting or any(running.job.ships for running in state.jobs.values()):
        return state
    due = _due(state)
    if not due:
        return replace(state, copying=replace(copying, is_settled=True))
    named, attempt = state.new_attempt()
    job = shipping_job(state, attempt, due)
    return submitted(named, now_s, job, is_foreground=not state.settings.is_concurrent) if admits(state, job) else state


def _asked(state: JobState, problem: PlanCopies) -> JobState:
    recovery, copying = state.recovery, state.copying
    copying = replace(
        copying,
        question=problem.number,
        nodes=frozenset(recovery.capacity) - state.draining,
        homes=recovery.roster.placed,
        samples=len(copying.loads),
    )
    return replace(state, next_number=state.next_number + 1, copying=copying).sending(problem)


def planned(state: JobState, answer: CopiesPlanned, now_s: float) -> JobState:
    """Keep copies where the planner says, from the next shipments on; what it knew may have changed meanwhile."""
    copying = state.copying
    if copying.question != answer.number:
        return state
    copying = replace(copying, question=None)
    if answer.refusal:
        warning = events.Warned(now_s, f"copies stay where they are: {answer.refusal}")
        return replace(state, copying=copying).sending(Emit(warning))
    targets: dict[Partition, tuple[NodeId, ...]] = {}
    for name, nodes in answer.placement.items():
        partition = Partition.parse(name)
        usable = [node for node in nodes if node not in state.draining and is_apart(state, partition, node)]
        targets[partition] = tuple(usable[: state.settings.copying.of(partition.operator)])
    anew = sum(node not in copying.targets.get(partition, ()) for partition, nodes in targets.items() for node in nodes)
    copying = replace(copying, targets=targets, kept_from=state.recovery.head, is_settled=False)
    state = _tidied(replace(state, copying=copying))
    return state.sending(Emit(_placed(state, anew, now_s))) if anew else state


def _placed(state: JobState, anew: int, now_s: float) -> events.CopiesPlaced:
    counts: dict[str, int] = {}
    for nodes in state.copying.targets.values():
        for node in nodes:
            counts[str(node)] = counts.get(str(node), 0) + 1
    wanted = sum(state.settings.copying.of(partition.operator) for partition in state.recovery.graph.upstream)
    return events.CopiesPlaced(now_s, state.settings.copying.algorithm, dict(sorted(counts.items())), wanted, anew)


def _due(state: JobState) -> dict[Partition, NodeId]:
    """What is shipped next: first copies that are missing, then those that are too old, some at a time; one of a partition."""
    recovery, every = state.recovery, state.settings.copying.every
    missing, old = dict[Partition, NodeId](), dict[Partition, NodeId]()
    for partition, nodes in state.copying.targets.items():
        if state.versions.get(partition) is None:
            # Its state is the checkpoint's, which any node can restore.
            continue
        oldest = recovery.restore_point(partition) if every is None else recovery.head - every + 1
        # Its own node may be another one than when the planner was asked.
        for node in (node for node in nodes if is_apart(state, partition, node)):
            copy = state.copies.get((partition, node))
            if copy is None:
                missing.setdefault(partition, node)
            elif copy.cursor < oldest:
                old.setdefault(partition, node)
    if missing:
        return _few([*missing.items()][:MOST_FIRST_COPIES], state.copying.size_bytes)
    # A refresh is taken to be as large as the last one.
    return _few(old.items(), state.copying.refresh_bytes)


def _few(due: Iterable[Place], size_bytes: Mapping[Partition, int]) -> dict[Partition, NodeId]:
    """So many copies that one job ships them soon; one at least, however large."""
    found, total = dict[Partition, NodeId](), 0
    for partition, node in due:
        total += size_bytes.get(partition, 0)
        if found and total > MOST_BYTES:
            break
        found[partition] = node
    return found


def shipped(state: JobState, job: Job, result: JobResult, now_s: float) -> JobState:
    """Other nodes have copies of states now; those that they replace are let go."""
    copies = dict(state.copies)
    for ship in job.ships:
        # What goes elsewhere while it is shipped is worth as much as before.
        copies[ship.partition, ship.target] = Replica(ship.partition, ship.target, ship.cursor, job.attempt, Role.COPY)
    sizes = {Partition.parse(name): size for name, size in result.copy_bytes.items()}
    sent = {Partition.parse(name): size for name, size in result.shipped_bytes.items()}
    refreshed = {ship.partition: sent.get(ship.partition, 0) for ship in job.ships if ship.base is not None}
    copying = replace(
        state.copying,
        is_settled=False,
        size_bytes={**state.copying.size_bytes, **sizes},
        refresh_bytes={**state.copying.refresh_bytes, **refreshed},
    )
    state = _tidied(replace(state, copies=copies, copying=copying))
    if state.migration is not None:
        return state
    return state.sending(Emit(events.CopiesRefreshed(now_s, state.recovery.head, len(job.ships), sum(sent.values()))))


def shipping_failed(state: JobState) -> JobState:
    """The older versions stay; it is tried again after a while."""
    return replace(state, copying=replace(state.copying, not_before_epoch=state.recovery.head + REST_EPOCHS))


def _tidied(state: JobState) -> JobState:
    """Without copies beside their primaries, and without those that nobody wants once the wanted ones are there."""
    targets, migration = state.copying.targets, state.migration
    moves = migration.moves if migration is not None else {}
    kept = {
        (partition, node): copy
        for (partition, node), copy in state.copies.items()
        if (moves.get(partition) == node != state.recovery.statuses[partition].node)
        or (is_apart(state, partition, node) and _is_wanted(state, partition, node, targets.get(partition, ())))
    }
    return state if len(kept) == len(state.copies) else replace(state, copies=kept)


def _is_wanted(state: JobState, partition: Partition, node: NodeId, targets: tuple[NodeId, ...]) -> bool:
    if node in targets:
        return True
    is_complete = all((partition, other) in state.copies for other in targets)
    return state.settings.copying.of(partition.operator) > 0 and not (targets and is_complete)


# Roles


def usable(state: JobState) -> dict[Place, int]:
    """The copies that are not older than what a checkpoint has, with their epochs."""
    recovery = state.recovery
    return {
        place: copy.cursor
        for place, copy in state.copies.items()
        if recovery.restore_point(place[0]) <= copy.cursor <= recovery.head and place[1] in recovery.capacity
    }


def nearest(state: JobState) -> dict[Partition, NodeId]:
    """The node with the newest usable copy of each partition."""
    found: dict[Partition, tuple[int, NodeId]] = {}
    for (partition, node), cursor in sorted(usable(state).items()):
        if node not in state.draining and (partition not in found or cursor > found[partition][0]):
            found[partition] = cursor, node
    return {partition: node for partition, (_, node) in found.items()}


def promoted(state: JobState, before: RecoveryState, now_s: float) -> JobState:
    """Partitions that were given a node which has a copy at their cursor go on from that copy; none stays beside its primary."""
    given = {
        partition: known
        for partition, known in state.recovery.statuses.items()
        if known.node is not None and known.node != before.statuses[partition].node
    }
    found: dict[Place, Replica] = {}
    for partition, known in given.items():
        copy = state.copies.get((partition, known.node)) if known.node is not None else None
        if copy is not None and copy.cursor == known.cursor:
            found[partition, copy.node] = copy
    kept = {place: copy for place, copy in state.copies.items() if place not in found and is_apart(state, *place)}
    if not found:
        return replace(state, copies=kept)
    state = replace(
        state,
        copies=kept,
        versions={**state.versions, **{p: copy.version for (p, _), copy in found.items() if copy.version is not None}},
        copying=replace(state.copying, unproven=state.copying.unproven | {partition for partition, _ in found}),
    )
    state, number = state.numbered()
    state = state.sending(ChangeRoles(number, promoted=tuple(found)))
    return state.sending(Emit(_used(state, found, len(given) - len(found), now_s)))


def _used(state: JobState, found: Mapping[Place, Replica], others: int, now_s: float) -> events.CopiesUsed:
    """What the copies saved: epochs that are not replayed, bytes that are not read from the durable store."""
    saved = sum(copy.cursor - state.recovery.restore_point(partition) for (partition, _), copy in found.items())
    size_bytes = sum(state.copying.size_bytes.get(partition, 0) for partition, _ in found)
    nodes = {str(partition): str(node) for partition, node in found}
    return events.CopiesUsed(now_s, nodes, others, saved, size_bytes)


def proven(state: JobState, job: Job) -> JobState:
    """A job that succeeded has read the copies that its partitions went on from."""
    if not state.copying.unproven:
        return state
    unproven = state.copying.unproven - {task.partition for task in job.tasks}
    return replace(state, copying=replace(state.copying, unproven=unproven))


def has_unproven(state: JobState, job: Job) -> bool:
    """Whether some partition of a job goes on from a copy that no task has read yet."""
    return any(task.partition in state.copying.unproven for task in job.tasks)


def damaged(state: JobState, job: Job, reason: str, now_s: float) -> JobState:
    """A copy is not what was shipped: those of the job that went on from copies are down again, without them."""
    gone = state.copying.unproven & {task.partition for task in job.tasks}
    before = state.recovery
    state = replace(
        state,
        recovery=transitions.rolled_back(before, gone),
        versions={partition: version for partition, version in state.versions.items() if partition not in gone},
        copying=replace(state.copying, unproven=state.copying.unproven - gone),
    )
    warning = events.Warned(now_s, f"a copy is not used: {reason}; its partitions are restored from elsewhere")
    return state.sending(Emit(warning)).emitting(*state.emitted.changed(now_s, before, state.recovery))


def demoted(state: JobState, job: Job) -> JobState:
    """What stays behind on a node that a partition leaves is a copy, if copies are wanted and the node may have one."""
    found: dict[Place, Replica] = {}
    for task in job.tasks:
        source, version = job.leaves.get(task.partition), task.replica.version
        if source is None or version is None or not state.settings.copying.of(task.partition.operator):
            continue
        if source in state.recovery.capacity and is_apart(state, task.partition, source, home=task.node):
            found[task.partition, source] = Replica(task.partition, source, task.replica.cursor, version, Role.COPY)
    return _as_copies(state, found)


def left_behind(state: JobState, moves: Mapping[Partition, NodeId]) -> JobState:
    """What live partitions leave on their nodes is a copy, as after a switch."""
    found: dict[Place, Replica] = {}
    for partition, target in moves.items():
        known, version = state.recovery.statuses[partition], state.versions.get(partition)
        if known.node is None or version is None or not state.settings.copying.of(partition.operator):
            continue
        if is_apart(state, partition, known.node, home=target):
            found[partition, known.node] = Replica(partition, known.node, known.cursor, version, Role.COPY)
    return _as_copies(state, found)


def _as_copies(state: JobState, found: Mapping[Place, Replica]) -> JobState:
    if not found:
        return state
    state, number = state.numbered()
    state = replace(state, copies={**state.copies, **found})
    return state.sending(ChangeRoles(number, demoted=tuple(found)))


def switched(state: JobState, placement: Mapping[Partition, NodeId]) -> JobState:
    """Primaries have new nodes: copies that are beside them now are let go."""
    is_wanted = bool(state.settings.copying.most)
    copies = {
        (partition, node): copy
        for (partition, node), copy in state.copies.items()
        if partition not in placement or (is_wanted and is_apart(state, partition, node))
    }
    return replace(state, copies=copies)


def after_move(state: JobState) -> JobState:
    """A migration has ended: the copies that were only for it are let go."""
    if not state.settings.copying.most:
        return replace(state, copies={})
    return _tidied(replace(state, copying=replace(state.copying, is_settled=False)))


def after_join(state: JobState) -> JobState:
    """Nodes that come may tell failure domains apart that were one before: copies beside their primaries get other places."""
    targets = {
        partition: tuple(node for node in nodes if is_apart(state, partition, node))
        for partition, nodes in state.copying.targets.items()
    }
    return replace(state, copying=replace(state.copying, targets=targets)) if targets else state


def after_loss(state: JobState, gone: frozenset[NodeId]) -> JobState:
    """Copies on lost nodes are gone, and are placed anew when everything is live."""
    copying: Copying = state.copying
    if copying.targets:
        targets = {partition: tuple(node for node in nodes if node not in gone) for partition, nodes in copying.targets.items()}
        copying = replace(copying, targets=targets, is_settled=False)
    copying = replace(copying, unproven=copying.unproven & state.versions.keys()) if copying.unproven else copying
    return replace(state, copying=copying, copies={place: copy for place, copy in state.copies.items() if place[1] not in gone})
