"""Moving live partitions to other nodes: what was asked for, what is shipped beforehand, and when partitions switch.

State is shipped in background jobs while the primary goes on (`precopy`), then the rest of it in the switch, which is a live
epoch that the partitions take on their new nodes. Until that epoch commits, the old node has the primary; so whatever
fails on the way, there is one primary, and nothing is lost. With `direct` partitions pause while all of their state is shipped, and
catch up on their new nodes; what fails before lets them go on where they are.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from resurge.coordinator import move_requests
from resurge.coordinator.commands import Emit, PlanMoves
from resurge.coordinator.inputs import JobResult, MovesPlanned
from resurge.coordinator.jobs import shipping_job
from resurge.coordinator.measuring import priced
from resurge.coordinator.move_requests import fits, move_problem, responded
from resurge.coordinator.policies import balance, copies, making_room, replaying
from resurge.coordinator.policies.submitting import submitted
from resurge.coordinator.scheduling import FILLED
from resurge.coordinator.state import JobState, Migration, Turn
from resurge.model.names import NodeId, Partition
from resurge.model.requests import CPA, CPAL, PAUSING, PRECOPY, Answer, Balance, Drain, Move, Verdict
from resurge.model.work import Job
from resurge.protocols import moving
from resurge.protocols.recovery import Phase
from resurge.telemetry import events

MOST_SHIPPED_AT_ONCE = 8
"""Partitions that one background job ships from a node, or to one: it holds a core of each of its nodes, so it should be short."""
FIRST_SHARE = 0.25
"""In this part of the time between two live epochs shipments begin, so that most end before the next epoch."""
MOST_ROUNDS = 4
RIDING_BYTES = 1_000_000
"""Once a shipment was no larger than this, the next one may ride in a live epoch; so may all of a plan that is no larger."""

Moves = Mapping[Partition, NodeId]


def requested(state: JobState, asked: Move | Drain | Balance, now_s: float) -> JobState:
    """Begin what a user asked for, or refuse it in one line. What nobody asked for stands back, unless it is just switching."""
    own = state.migration is not None and not state.migration.request
    if own and not any(running.job.leaves for running in state.jobs.values()):
        wanted = given_up(state, "a user asked for something else", now_s)
        state = state if move_requests.refusal(wanted, asked) else wanted
    refusal = move_requests.refusal(state, asked)
    if refusal:
        return responded(state, asked.request, Answer(Verdict.REFUSED, refusal))
    if isinstance(asked, Move):
        moves = move_requests.moves_asked(state, asked)
        if not moves:
            return responded(state, asked.request, Answer(Verdict.DONE, f"everything asked for is on {asked.target} already"))
        return _started(state, Migration(asked.request, asked.how, now_s, is_planned=True), moves, now_s)
    if isinstance(asked, Drain):
        state = priced(replace(state, draining=state.draining | {asked.node}))
        return replace(state, migration=Migration(asked.request, PRECOPY, now_s, drains=asked.node))
    return replace(state, migration=Migration(asked.request, PRECOPY, now_s, is_dry_run=asked.is_dry_run))


def proposed(state: JobState, now_s: float) -> JobState:
    """Ask the planner, or ship what must be shipped before the switch; the same state if there is nothing to do now."""
    migration = state.migration
    if migration is None:
        balanced = balance.proposed(state, now_s)
        return balanced if balanced is not state else making_room.proposed(state, now_s)
    if migration.is_paused:
        return _shipped_directly(state, migration, now_s)
    if migration.makes_room and not making_room.is_wanted(state):
        return given_up(state, "nothing waits for room any more", now_s)
    if migration.question is not None or not _may_move(state, migration):
        return state
    if not migration.is_planned:
        problem = move_problem(state, migration.drains, making_room.waiting(state) if migration.makes_room else ())
        migration = replace(migration, question=state.next_number)
        return replace(state, next_number=state.next_number + 1, migration=migration).sending(
            PlanMoves(state.next_number, problem)
        )
    if not _has_time(state, now_s):
        return state
    if arrived := [p for p, node in migration.moves.items() if state.recovery.statuses[p].node == node]:
        return _brought(state, migration, arrived, now_s)
    if migration.how in PAUSING:
        return _paused(state, migration, now_s) if migration.moves else _caught_up(state, migration, now_s)
    unready = _unready(state, migration)
    if not unready or any(running.job.ships or running.job.is_replay for running in state.jobs.values()):
        return state
    if migration.how == CPAL:
        outdated = replaying.outdated(state, migration, unready)
        if not outdated:
            return replaying.replay(state, migration, unready, now_s)
        unready = outdated
    moves = _shipped_at_once(state, unready, migration.moves)
    state, attempt = state.new_attempt()
    job = shipping_job(state, attempt, moves)
    return submitted(state, now_s, job, is_foreground=not state.settings.is_concurrent)


def _brought(state: JobState, migration: Migration, arrived: Collection[Partition], now_s: float) -> JobState:
    """A recovery has brought partitions to where they were to go."""
    left = {partition: node for partition, node in migration.moves.items() if partition not in arrived}
    state = replace(state, migration=replace(migration, moves=left, moved=migration.moved + len(arrived)))
    return state if left else _concluded(state, now_s)


def _may_move(state: JobState, migration: Migration) -> bool:
    """Whether everything is live; room is made while others are down, but nothing catches up."""
    return state.recovery.all_live or (migration.makes_room and not state.recovery.has_phase(Phase.CATCHING_UP))


def _has_time(state: JobState, now_s: float) -> bool:
    """Whether a job that ships state can begin: early between two live epochs, as it holds cores that the next one needs."""
    lane = state.lane
    # Where there was no input, the time since the sources were last asked counts.
    free_s = max(lane.began_s, lane.ended_s)
    rest_s = lane.began_s + lane.rest_s - free_s
    return lane.turn is Turn.RESTING and (rest_s <= 0 or now_s - free_s <= FIRST_SHARE * rest_s)


def _shipped_at_once(state: JobState, unready: Iterable[Partition], moves: Moves) -> dict[Partition, NodeId]:
    """What the next background job ships: so much that no node sends or receives more than some."""
    found: dict[Partition, NodeId] = {}
    shipping: dict[NodeId | None, int] = {}
    for partition in unready:
        ends = (state.recovery.statuses[partition].node, moves[partition])
        if all(shipping.get(node, 0) < MOST_SHIPPED_AT_ONCE for node in ends):
            found[partition] = moves[partition]
            shipping |= {node: shipping.get(node, 0) + 1 for node in ends}
    return found


def planned(state: JobState, answer: MovesPlanned, now_s: float) -> JobState:
    """Carry out what the planner chose; an answer to a question that nobody asks any more is dropped."""
    migration = state.migration
    if migration is None or migration.question != answer.number:
        return state
    live = state.recovery.live
    # What is down goes to the room that is made as soon as it is there.
    moves = {p: node for name, node in answer.moves.items() if (p := Partition.parse(name)) in live or not migration.makes_room}
    # What a copy lacks is shipped too, and nobody knows how much that is.
    is_small = answer.shipped_bytes is not None and answer.shipped_bytes <= RIDING_BYTES
    rides = is_small and state.copies.keys().isdisjoint(moves.items())
    migration = replace(migration, question=None, is_planned=True, rides=rides)
    state = replace(state, migration=migration)
    if answer.refusal:
        return _refused(state, answer.refusal, now_s)
    if not _may_move(state, migration) or not state.recovery.capacity.keys() >= set(moves.values()):
        return replace(state, migration=replace(migration, is_planned=False))
    if migration.is_dry_run:
        return _concluded(state, now_s, move_requests.summary(state, moves, answer))
    if not moves and any(known.node == migration.drains for known in state.recovery.statuses.values()):
        # To ask again would bring the same answer.
        return _refused(state, f"no other node takes what is on {migration.drains}; ask again when more nodes are up", now_s)
    if not moves:
        return _concluded(state, now_s, "no move is worth it: nothing moves" if migration.drains is None else "")
    return _started(state, migration, moves, now_s)


def _started(state: JobState, migration: Migration, moves: Moves, now_s: float) -> JobState:
    here = {str(partition): [str(state.recovery.statuses[partition].node), str(node)] for partition, node in moves.items()}
    begun = replace(migration, moves=dict(moves), is_reported=True, rounds={}, shipped_bytes={}, kept_from=state.recovery.head)
    state = replace(state, migration=begun)
    if not migration.is_reported:
        state = responded(state, migration.request, Answer(Verdict.ACCEPTED, f"{len(moves)} partitions move"))
    return state.sending(Emit(events.MoveStarted(now_s, migration.request, migration.how, here)))


# Shipping, and the switch


def _unready(state: JobState, migration: Migration) -> list[Partition]:
    """The partitions of which much must still be shipped, or replayed, before they may switch."""
    if migration.how == CPAL:
        return replaying.behind(state, migration)
    if migration.how != PRECOPY or migration.rides:
        return []
    return [
        partition
        for partition, target in migration.moves.items()
        if state.versions.get(partition) is not None
        and state.recovery.statuses[partition].node != target
        and _is_far(state, migration, partition, target)
    ]


def _is_far(state: JobState, migration: Migration, partition: Partition, target: NodeId) -> bool:
    """Whether the target has no copy, an old one that was not refreshed for the move, or one that much was shipped for lately."""
    copy, rounds = state.copies.get((partition, target)), migration.rounds.get(partition, 0)
    if copy is None:
        return True
    if not rounds:
        return state.recovery.head - copy.cursor > replaying.NEAR_EPOCHS
    return rounds < MOST_ROUNDS and migration.shipped_bytes.get(partition, 0) > RIDING_BYTES


def shipped(state: JobState, job: Job, result: JobResult, now_s: float) -> JobState:
    """Other nodes have copies of states now."""
    if state.migration is not None:
        state = replace(state, migration=_counted(state.migration, result, _ours(state.migration, job)))
    return copies.shipped(state, job, result, now_s)


def _is_ours(migration: Migration | None, job: Job) -> bool:
    """Whether a job ships or replays for the migration, and not for copies that are kept."""
    return migration is not None and (job.is_replay or bool(_ours(migration, job)))


def _ours(migration: Migration, job: Job) -> frozenset[Partition]:
    """What a job ships for the migration; the same job may refresh copies of others."""
    return frozenset(ship.partition for ship in job.ships if migration.moves.get(ship.partition) == ship.target)


def shipping_failed(state: JobState, job: Job, reason: str, now_s: float) -> JobState:
    """Whatever is wrong with shipping state, the job goes on without."""
    if job.is_replay:
        state = replaying.failed(state, job)
    return given_up(state, reason, now_s) if _is_ours(state.migration, job) else copies.shipping_failed(state)


def _paused(state: JobState, migration: Migration, now_s: float) -> JobState:
    """Everything that moves takes no more epochs where it is."""
    if state.background or state.taken is not None:
        # Another job reads or writes the states that are left behind.
        return state
    if full := fits(state, migration.moves):
        return given_up(state, full, now_s)
    migration = replace(migration, paused_s=now_s)
    if migration.how == CPA:
        return _relocated(state, migration, now_s)
    before, after = state.recovery, moving.paused(state.recovery, migration.moves)
    state = replace(state, recovery=after, migration=replace(migration, is_paused=True))
    return state.emitting(*state.emitted.changed(now_s, before, after))


def _shipped_directly(state: JobState, migration: Migration, now_s: float) -> JobState:
    """All that paused partitions have is shipped; then they go on from it."""
    if any(running.job.ships for running in state.jobs.values()):
        return state
    unshipped = {
        partition: target
        for partition, target in migration.moves.items()
        if state.versions.get(partition) is not None
        and ((copy := state.copies.get((partition, target))) is None or copy.cursor < state.recovery.statuses[partition].cursor)
    }
    if unshipped:
        state, attempt = state.new_attempt()
        job = shipping_job(state, attempt, unshipped)
        return submitted(state, now_s, job, is_foreground=not state.settings.is_concurrent)
    if full := fits(state, migration.moves):
        return given_up(state, full, now_s)
    return _relocated(state, replace(migration, is_paused=False), now_s)


def _relocated(state: JobState, migration: Migration, now_s: float) -> JobState:
    """Everything moves at once to where a copy or the checkpoint is caught up from, as after a loss."""
    state = replaying.relocated(state, migration.moves, now_s)
    return replace(state, migration=replace(migration, moves={}, moved=len(migration.moves)))


def _caught_up(state: JobState, migration: Migration, now_s: float) -> JobState:
    return _concluded(replace(state, migration=replace(migration, pause_s=now_s - migration.paused_s)), now_s)


def _counted(migration: Migration, result: JobResult, ours: Collection[Partition]) -> Migration:
    """With what a job shipped for some partitions."""
    shipped_bytes = {Partition.parse(name): size for name, size in result.shipped_bytes.items()}
    sent = {partition: size for partition, size in shipped_bytes.items() if partition in ours}
    return replace(
        migration,
        rounds={**migration.rounds, **{partition: migration.rounds.get(partition, 0) + 1 for partition in sent}},
        shipped_bytes={**migration.shipped_bytes, **sent},
        total_bytes=migration.total_bytes + sum(sent.values()),
    )


def switching(state: JobState, now_s: float) -> tuple[JobState, Moves]:
    """The partitions that take the next live epoch on another node; none unless everything is ready and live."""
    migration = state.migration
    if migration is None or migration.question is not None or not migration.is_planned or not migration.moves:
        return state, {}
    if migration.how in PAUSING or not _may_move(state, migration) or state.background or _unready(state, migration):
        return state, {}
    moves = {p: node for p, node in migration.moves.items() if state.recovery.statuses[p].node != node}
    if full := fits(state, moves, FILLED if migration.makes_room else 1.0):
        return given_up(state, full, now_s), {}
    return state, moves


def switched(state: JobState, job: Job, result: JobResult, now_s: float) -> JobState:
    """Partitions have taken an epoch on their new nodes: those have the primaries now."""
    placement = {task.partition: task.node for task in job.tasks if task.partition in job.leaves}
    state = replace(
        state,
        recovery=moving.switched(state.recovery, placement),
        buffers=state.buffers.without_producers(placement),
    )
    state = copies.switched(state, placement)
    if state.migration is None:
        return state
    migration = _counted(state.migration, result, placement)
    left = {partition: node for partition, node in migration.moves.items() if partition not in placement}
    pause_s = max(migration.pause_s, result.shipping_s)
    migration = replace(migration, moves=left, moved=migration.moved + len(placement), pause_s=pause_s)
    state = replace(state, migration=migration)
    return state if left else _concluded(state, now_s)


# Ends


def after_loss(state: JobState, gone: frozenset[NodeId], now_s: float) -> JobState:
    """Copies on lost nodes are gone; so are the moves that needed them."""
    recovery = state.recovery
    down = frozenset(recovery.of_phase(Phase.DOWN))
    state = copies.after_loss(replace(state, draining=state.draining - gone), gone)
    migration = state.migration
    if migration is None:
        return state
    if migration.is_paused:
        # Whoever is down waits for the planner, who waits for nobody that is paused.
        return given_up(state, f"{', '.join(sorted(gone))} was lost", now_s)
    if migration.drains in gone:
        return given_up(state, f"node {migration.drains} was lost before it was empty", now_s)
    left = {p: node for p, node in migration.moves.items() if node not in gone and p not in down}
    if len(left) == len(migration.moves):
        return state
    lost = ", ".join(sorted(gone))
    if migration.drains is not None:
        return replace(state, migration=replace(migration, moves={}, is_planned=False))
    return given_up(replace(state, migration=replace(migration, moves=left)), f"{lost} was lost", now_s)


def released(state: JobState, nodes: frozenset[NodeId]) -> JobState:
    """Nodes that were drained are gone: nobody waits for them to come back."""
    if not nodes:
        return state
    wanted = max(1, state.strategy.nodes_wanted - len(nodes))
    return replace(state, strategy=replace(state.strategy, nodes_wanted=wanted))


def given_up(state: JobState, reason: str, now_s: float) -> JobState:
    """What has not moved stays where it is."""
    migration = state.migration
    if migration is None:
        return state
    stays = "nothing has moved" if not migration.moved else f"{migration.moved} partitions have moved, the others stay"
    return _ended(state, Answer(Verdict.FAILED, f"{reason}; {stays}"), now_s)


def _refused(state: JobState, reason: str, now_s: float) -> JobState:
    migration = state.migration
    assert migration is not None
    if migration.is_reported:
        return given_up(state, reason, now_s)
    return _ended(state, Answer(Verdict.REFUSED, reason), now_s)


def _concluded(state: JobState, now_s: float, text: str = "") -> JobState:
    """All moves are done; a drain goes on until its node is empty."""
    migration = state.migration
    assert migration is not None
    if migration.drains is not None:
        if any(known.node == migration.drains for known in state.recovery.statuses.values()):
            return replace(state, migration=replace(migration, moves={}, is_planned=False))
        text = f"node {migration.drains} is empty and may go"
    return _ended(state, Answer(Verdict.DONE, text or f"{migration.moved} partitions have moved"), now_s)


def _ended(state: JobState, answer: Answer, now_s: float) -> JobState:
    migration = state.migration
    assert migration is not None
    took_s = now_s - migration.since_s
    is_done = answer.verdict is Verdict.DONE
    if migration.drains is not None and not is_done:
        state = priced(replace(state, draining=state.draining - {migration.drains}))
    if migration.is_reported:
        failure = "" if is_done else answer.text
        emitted = events.MoveEnded(
            now_s, migration.request, migration.moved, took_s, migration.pause_s, migration.total_bytes, failure
        )
        state = state.sending(Emit(emitted))
    full = Answer(answer.verdict, answer.text, took_s, migration.pause_s)
    state = replaying.ended(copies.after_move(replace(state, migration=None)))
    state = responded(state, migration.request, full)
    return balance.rested(state, is_better=migration.moved > 0)
