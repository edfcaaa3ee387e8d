"""What must hold after every step (safety) and at the end (liveness). Each checker says what was expected and what came.

Exactly-once input is checked where a job takes it (`World.run`), exactly-once output where it is published (`Sink.publish`).
"""

from resurge.coordinator.commands import Cancel, Command, Emit, Poll, Run
from resurge.coordinator.state import JobState
from resurge.errors import SimulationError
from resurge.model.names import NodeId, Partition
from resurge.model.requests import Drain, Verdict
from resurge.model.work import Role
from resurge.protocols.recovery import Phase, RecoveryState
from resurge.simulator.requests import Requests
from resurge.simulator.world import World

TOLERANCE = 1e-9


def check_step(before: RecoveryState, state: JobState, world: World) -> None:
    """Everything that must hold after each change of the state."""
    after, strategy = state.recovery, state.strategy
    check_phases(after)
    check_owners(state, world)
    check_restore_points(before, after, state.settings.checkpoint_interval)
    is_complete = strategy.overfills_at_last and len(after.capacity) >= strategy.nodes_wanted
    if strategy.heeds_capacity and not is_complete:
        check_capacity(before, after)
    if strategy.name != "source-replay":
        check_no_roll_back(before, after)


def check_commands(before: JobState, after: JobState, sent: tuple[Command, ...]) -> None:
    """Every numbered command is new and will be answered; no two jobs in flight write the same replica."""
    numbers = [command.number for command in sent if not isinstance(command, Run | Cancel | Poll | Emit)]
    if len(set(numbers)) < len(numbers) or any(number < before.next_number for number in numbers):
        raise SimulationError(f"commands {numbers} were sent; expected numbers from {before.next_number} on, each once")
    writers: dict[tuple[Partition, Role], str] = {}
    for attempt, flight in after.jobs.items():
        for task in flight.job.tasks:
            other = writers.setdefault((task.partition, task.replica.role), attempt)
            if other != attempt:
                raise SimulationError(f"jobs {other} and {attempt} both write the {task.replica.role.value} of {task.partition}")


def check_phases(recovery: RecoveryState) -> None:
    """A live partition stands at the head below live ones only; one that catches up has nothing down above it."""
    for partition, upstream in recovery.graph.upstream.items():
        known = recovery.statuses[partition]
        if (known.node is None) != (known.phase is Phase.DOWN):
            raise SimulationError(
                f"partition {partition} is {known.phase.name} on {known.node}; expected a node unless it is DOWN"
            )
        if known.node is not None and known.node not in recovery.capacity:
            raise SimulationError(f"partition {partition} is on {known.node}, which is not there")
        if known.phase is Phase.LIVE and known.cursor != recovery.head:
            raise SimulationError(
                f"partition {partition} is LIVE at epoch {known.cursor}; expected the head, epoch {recovery.head}"
            )
        if not recovery.restore_point(partition) <= known.cursor <= recovery.head:
            raise SimulationError(
                f"partition {partition} is at epoch {known.cursor}; expected {recovery.restore_point(partition)} to {recovery.head}"
            )
        above = {recovery.statuses[other].phase for other in upstream}
        allowed = {Phase.LIVE: {Phase.LIVE}, Phase.CATCHING_UP: {Phase.LIVE, Phase.CATCHING_UP}}.get(known.phase)
        if allowed is not None and not above <= allowed:
            raise SimulationError(f"partition {partition} is {known.phase.name} below {sorted(p.name for p in above - allowed)}")


def check_restore_points(before: RecoveryState, after: RecoveryState, interval: int) -> None:
    """Whatever was live and still is goes on after a loss from less than a checkpoint interval ago, whoever else is down."""
    for partition in after.graph.upstream:
        point = after.restore_point(partition)
        if point < before.restore_point(partition):
            raise SimulationError(
                f"partition {partition} restores from epoch {point}; expected {before.restore_point(partition)} or later, as before"
            )
        is_live = partition in before.live and partition in after.live
        if is_live and after.head > before.head and after.head - point >= interval > 0:
            raise SimulationError(
                f"partition {partition} is live at epoch {after.head} and restores from epoch {point}; "
                f"expected less than {interval} epochs between them"
            )


def check_owners(state: JobState, world: World) -> None:
    """The state that the driver believes to be on a node is there, unless the node is gone and the driver does not know."""
    recovery = state.recovery
    for partition, held in world.owners():
        known = recovery.statuses[partition]
        if known.phase not in (Phase.LIVE, Phase.STALLED) or state.versions.get(partition) is None:
            continue
        if (held.node, held.cursor) != (known.node, known.cursor):
            raise SimulationError(
                f"partition {partition} has state of epoch {held.cursor} on {held.node}; expected epoch {known.cursor} on {known.node}"
            )


def check_capacity(before: RecoveryState, after: RecoveryState) -> None:
    """The partitions that run on a node never cost more than it may spend, unless they did so from the beginning."""
    known, used = _used(before), _used(after)
    for node, cost in used.items():
        allowed = max(after.capacity[node], known.get(node, 0.0))
        if cost > allowed * (1 + TOLERANCE) + TOLERANCE:
            raise SimulationError(
                f"node {node} has partitions of cost {cost:.6f}; expected at most its capacity, {after.capacity[node]:.6f}"
            )


def _used(recovery: RecoveryState) -> dict[NodeId, float]:
    used: dict[NodeId, float] = {}
    for partition, known in recovery.statuses.items():
        if known.node is not None and known.phase is not Phase.STALLED:
            used[known.node] = used.get(known.node, 0.0) + recovery.costs.get(partition, 0.0)
    return used


def check_no_roll_back(before: RecoveryState, after: RecoveryState) -> None:
    """What is up and survives keeps node and cursor."""
    if before.statuses is after.statuses:
        return
    for partition, was in before.statuses.items():
        now = after.statuses[partition]
        if was.node is None or was.node not in after.capacity:
            continue
        if was.phase is Phase.STALLED and now.phase in (Phase.CATCHING_UP, Phase.LIVE) and now.node != was.node:
            # Its own node was given to others while it could not run; at once live if the checkpoint is the head.
            continue
        if was.phase is Phase.LIVE and now.phase is Phase.LIVE and now.cursor > was.cursor:
            # It may have taken the epoch on another node: that its state is there, the owners' check says.
            continue
        if now.node != was.node or now.cursor < was.cursor:
            raise SimulationError(
                f"partition {partition} was at epoch {was.cursor} on {was.node} and is at epoch {now.cursor} on {now.node}, "
                "though its node lives; expected no roll-back"
            )


def check_end(recovery: RecoveryState, world: World) -> None:
    """Faults have stopped and nodes suffice: everything is live, and every query partition showed every epoch."""
    waiting = recovery.of_phase(Phase.DOWN, Phase.STALLED, Phase.CATCHING_UP)
    if waiting:
        known = recovery.statuses[waiting[0]]
        raise SimulationError(
            f"{len(waiting)} partitions never came back, the first being {waiting[0]}, {known.phase.name} at epoch {known.cursor} "
            f"of {recovery.head}; expected all to be live, since nodes suffice"
        )
    for query, published in world.sink.published.items():
        if len(published) != recovery.head:
            raise SimulationError(f"query partition {query} published {len(published)} epochs; expected {recovery.head}")


def check_requests(state: JobState, requests: Requests) -> None:
    """Every request was answered: at most accepted once, then finally; and a node that was drained is empty."""
    statuses = state.recovery.statuses.values()
    for request, wish in requests.asked.items():
        verdicts = [answer.verdict for answer in requests.answers.get(request, [])]
        if [verdict for verdict in verdicts if verdict is not Verdict.ACCEPTED] != verdicts[-1:] or len(verdicts) not in (1, 2):
            raise SimulationError(f"request {request} was answered {verdicts}; expected at most ACCEPTED, then one final verdict")
        # One that was lost and came back is a new node.
        is_drained = isinstance(wish, Drain) and verdicts[-1] is Verdict.DONE and wish.node in state.draining
        if isinstance(wish, Drain) and is_drained and any(known.node == wish.node for known in statuses):
            raise SimulationError(f"node {wish.node} was drained and has partitions; expected none")
