"""Moving live partitions to other nodes: what was asked for, what is shipped beforehand, and when partitions switch.

State is shipped in background jobs while the primary goes on (`precopy`), then the rest of it in the switch, which is a live
epoch that the partitions take on their new nodes. Until that epoch commits, the old node has the primary; so whatever
fails on the way, there is one primary, and nothing is lost.
"""

from collections.abc import Mapping
from dataclasses import replace

from resurge.coordinator import move_requests
from resurge.coordinator.commands import Emit, PlanMoves
from resurge.coordinator.inputs import JobResult, MovesPlanned
from resurge.coordinator.jobs import shipping_job
from resurge.coordinator.measuring import priced
from resurge.coordinator.move_requests import fits, move_problem, responded
from resurge.coordinator.policies import balance
from resurge.coordinator.policies.submitting import submitted
from resurge.coordinator.state import JobState, Migration
from resurge.model.names import NodeId, Partition
from resurge.model.requests import PRECOPY, Answer, Balance, Drain, Move, Verdict
from resurge.model.work import Job, Replica, Role
from resurge.protocols import recovery as transitions
from resurge.protocols.recovery import Phase
from resurge.telemetry import events

MOST_SHIPPED_AT_ONCE = 8
"""Partitions of one background job: it holds a core of each of its nodes, so it should be short."""
MOST_ROUNDS = 4
RIDING_BYTES = 1_000_000
"""Once a shipment was no larger than this, the next one may ride in a live epoch."""

Moves = Mapping[Partition, NodeId]


def requested(state: JobState, wish: Move | Drain | Balance, now_s: float) -> JobState:
    """Begin what a user asked for, or refuse it in one line."""
    refusal = move_requests.refusal(state, wish)
    if refusal:
        return responded(state, wish.request, Answer(Verdict.REFUSED, refusal))
    if isinstance(wish, Move):
        moves = move_requests.wished(state, wish)
        if not moves:
            return responded(state, wish.request, Answer(Verdict.DONE, f"everything asked for is on {wish.target} already"))
        return _started(state, Migration(wish.request, wish.how, now_s, is_planned=True), moves, now_s)
    if isinstance(wish, Drain):
        state = priced(replace(state, draining=state.draining | {wish.node}))
        return replace(state, migration=Migration(wish.request, PRECOPY, now_s, drains=wish.node))
    return replace(state, migration=Migration(wish.request, PRECOPY, now_s, is_dry_run=wish.is_dry_run))


def proposed(state: JobState, now_s: float) -> JobState:
    """Ask the planner, or ship what must be shipped before the switch; the same state if there is nothing to do now."""
    migration = state.migration
    if migration is None:
        return balance.proposed(state, now_s)
    if migration.question is not None or not state.recovery.all_live:
        return state
    if not migration.is_planned:
        problem = move_problem(state, migration.drains)
        migration = replace(migration, question=state.next_number)
        return replace(state, next_number=state.next_number + 1, migration=migration).sending(
            PlanMoves(state.next_number, problem)
        )
    unready = _unready(state, migration)
    if not unready or any(flight.job.ships for flight in state.jobs.values()):
        return state
    moves = {partition: migration.moves[partition] for partition in unready[:MOST_SHIPPED_AT_ONCE]}
    state, attempt = state.new_attempt()
    job = shipping_job(state, attempt, moves)
    return submitted(state, now_s, job, is_foreground=not state.settings.is_concurrent)


def planned(state: JobState, answer: MovesPlanned, now_s: float) -> JobState:
    """Carry out what the planner chose; an answer to a question that nobody asks any more is dropped."""
    migration = state.migration
    if migration is None or migration.question != answer.number:
        return state
    migration = replace(migration, question=None, is_planned=True)
    state = replace(state, migration=migration)
    if answer.refusal:
        return _refused(state, answer.refusal, now_s)
    moves = {Partition.parse(name): node for name, node in answer.moves.items()}
    if not state.recovery.all_live or not state.recovery.capacity.keys() >= set(moves.values()):
        return replace(state, migration=replace(migration, is_planned=False))
    if migration.is_dry_run:
        return _concluded(state, now_s, move_requests.summary(state, moves, answer))
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
    """The partitions of which much must still be shipped before they may switch."""
    if migration.how != PRECOPY:
        return []
    return [
        partition
        for partition, target in migration.moves.items()
        if state.versions.get(partition) is not None
        and state.recovery.statuses[partition].node != target
        and (
            (partition, target) not in state.copies
            or (migration.shipped_bytes.get(partition, 0) > RIDING_BYTES and migration.rounds.get(partition, 0) < MOST_ROUNDS)
        )
    ]


def shipped(state: JobState, job: Job, result: JobResult) -> JobState:
    """Other nodes have copies of states now."""
    copies = dict(state.copies)
    for ship in job.ships:
        # What goes elsewhere while it is shipped is worth as much as before.
        copies[ship.partition, ship.target] = Replica(ship.partition, ship.target, ship.cursor, job.attempt, Role.COPY)
    return replace(state, copies=copies, migration=_counted(state.migration, result))


def _counted(migration: Migration | None, result: JobResult) -> Migration | None:
    if migration is None:
        return None
    sent = {Partition.parse(name): size for name, size in result.shipped_bytes.items()}
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
    if not state.recovery.all_live or state.background or _unready(state, migration):
        return state, {}
    moves = {p: node for p, node in migration.moves.items() if state.recovery.statuses[p].node != node}
    if full := fits(state, moves):
        return given_up(state, full, now_s), {}
    return state, moves


def switched(state: JobState, job: Job, result: JobResult, now_s: float) -> JobState:
    """Partitions have taken an epoch on their new nodes: those have the primaries now."""
    placement = {task.partition: task.node for task in job.tasks if task.partition in job.leaves}
    state = replace(
        state,
        recovery=transitions.switched(state.recovery, placement),
        buffers=state.buffers.without_producers(placement),
        copies={key: copy for key, copy in state.copies.items() if key[0] not in placement},
    )
    migration = _counted(state.migration, result)
    if migration is None:
        return state
    left = {partition: node for partition, node in migration.moves.items() if partition not in placement}
    pause_s = max(migration.pause_s, result.shipping_s)
    migration = replace(migration, moves=left, moved=migration.moved + len(placement), pause_s=pause_s)
    state = replace(state, migration=migration)
    return state if left else _concluded(state, now_s)


# Ends


def after_loss(state: JobState, gone: frozenset[NodeId], now_s: float) -> JobState:
    """Copies on lost nodes, or of lost primaries, are gone; so are the moves that needed them."""
    recovery = state.recovery
    down = frozenset(recovery.of_phase(Phase.DOWN))
    copies = {key: copy for key, copy in state.copies.items() if key[1] not in gone and key[0] not in down}
    state = replace(state, copies=copies, draining=state.draining - gone)
    migration = state.migration
    if migration is None:
        return state
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
    state = responded(replace(state, migration=None, copies={}), migration.request, full)
    return balance.rested(state)
