"""What must hold after every step (safety) and at the end (liveness). Each checker says what was expected and what came.

Exactly-once input is checked where a job takes it (`World.run`), exactly-once output where it is published (`Sink.publish`).
"""

from collections.abc import Mapping

from resurge.coordinator.commands import Cancel, Command, Emit, Poll, ReleaseNodes, RequestNodes, Run
from resurge.coordinator.scheduling import FILLED
from resurge.coordinator.state import JobState
from resurge.errors import SimulationError
from resurge.model.gaps import Gap
from resurge.model.names import NodeId, Partition
from resurge.model.requests import PAUSING, Drain, Verdict
from resurge.model.work import Role
from resurge.protocols.recovery import Phase, RecoveryState
from resurge.simulator.requests import Requests
from resurge.simulator.sink import GAP
from resurge.simulator.world import World

TOLERANCE = 1e-9


def check_step(known: JobState, state: JobState, world: World) -> None:
    """Everything that must hold after each change of the state."""
    before, after, strategy = known.recovery, state.recovery, state.strategy
    check_phases(after)
    check_owners(state, world)
    check_copies(state, world)
    is_writing = any(running.job.awaits is not None for running in known.jobs.values())
    check_restore_points(before, after, 0 if is_writing or state.taken else state.settings.checkpoint_interval)
    is_complete = strategy.overfills_at_last and len(after.capacity) >= strategy.nodes_wanted
    if strategy.heeds_capacity and not is_complete:
        check_capacity(before, after, FILLED if strategy.overfills_at_last else 1.0)
    if strategy.name != "source-replay":
        # A user's move may begin in the step in which the balancer's own ends.
        ways = {migration.how for migration in (known.migration, state.migration) if migration is not None}
        check_no_roll_back(before, after, is_paused=not ways.isdisjoint(PAUSING))


def check_commands(before: JobState, after: JobState, sent: tuple[Command, ...]) -> None:
    """Every numbered command is new and will be answered; no two jobs in flight write the same replica."""
    numbers = [command.number for command in sent if not isinstance(command, Run | Cancel | Poll | Emit)]
    if len(set(numbers)) < len(numbers) or any(number < before.next_number for number in numbers):
        raise SimulationError(f"commands {numbers} were sent; expected numbers from {before.next_number} on, each once")
    writers: dict[tuple[Partition, Role], str] = {}
    for attempt, running in after.jobs.items():
        for task in running.job.tasks:
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
    """Whatever was live and still is goes on after a loss from less than a checkpoint interval ago, whoever else is down.

    While a checkpoint is being written, which none waits for, the interval is 0: no other one is due.
    """
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


def check_copies(state: JobState, world: World) -> None:
    """Every copy that the driver counts on is there, at its epoch, and does not fail with its primary."""
    moves = state.migration.moves if state.migration is not None else {}
    for (partition, node), copy in state.copies.items():
        held = world.copies.get((partition, node))
        if held is None:
            if world.nodes[node].is_up():
                raise SimulationError(f"a copy of {partition} is not on {node}; expected one of epoch {copy.cursor}")
        elif (held.version, held.cursor) != (copy.version, copy.cursor):
            raise SimulationError(
                f"the copy of {partition} on {node} is version {held.version} of epoch {held.cursor}; "
                f"expected version {copy.version} of epoch {copy.cursor}"
            )
        home, is_kept = state.recovery.statuses[partition].node, node in state.copying.targets.get(partition, ())
        # What is shipped for a move may lie beside the primary until that has gone there.
        if (
            is_kept
            and (moves.get(partition) != node or node == home)
            and home is not None
            and state.domains[node] == state.domains[home]
        ):
            raise SimulationError(f"{partition} on {home} has a copy on {node}, of the same failure domain; expected another")


def check_capacity(before: RecoveryState, after: RecoveryState, filled: float = 1.0) -> None:
    """The partitions that run on a node never cost more than so much of what it may spend, unless they did so from the beginning."""
    known, used = _used(before), _used(after)
    for node, cost in used.items():
        # One that begins to drain in the same step took what it did while it had its capacity.
        allowed = max(filled * after.capacity[node], before.capacity.get(node, 0.0), known.get(node, 0.0))
        if cost > allowed * (1 + TOLERANCE) + TOLERANCE:
            raise SimulationError(
                f"node {node} has partitions of cost {cost:.6f}; expected at most {filled:g} of its capacity, {after.capacity[node]:.6f}"
            )


def _used(recovery: RecoveryState) -> dict[NodeId, float]:
    used: dict[NodeId, float] = {}
    for partition, known in recovery.statuses.items():
        if known.node is not None and known.phase is not Phase.STALLED:
            used[known.node] = used.get(known.node, 0.0) + recovery.costs.get(partition, 0.0)
    return used


def check_no_roll_back(before: RecoveryState, after: RecoveryState, *, is_paused: bool = False) -> None:
    """What is up and survives keeps node and cursor, but for those that are moved to an older state elsewhere."""
    if before.statuses is after.statuses:
        return
    for partition, was in before.statuses.items():
        now = after.statuses[partition]
        if was.node is None or was.node not in after.capacity:
            continue
        # One that has just caught up may be moved in the same step.
        if (
            is_paused
            and was.phase in (Phase.CATCHING_UP, Phase.LIVE)
            and now.phase in (Phase.CATCHING_UP, Phase.LIVE)
            and now.node != was.node
        ):
            continue
        if was.phase is Phase.STALLED and now.phase in (Phase.CATCHING_UP, Phase.LIVE) and now.node != was.node:
            # Its own node was given to others while it could not run; at once live if the checkpoint is the head.
            continue
        if was.phase is Phase.LIVE and now.phase is Phase.LIVE and now.cursor >= was.cursor:
            # It goes on on another node, from a copy of the head or with an epoch: that its state is there, the owners' check says.
            continue
        if was.phase is Phase.STALLED and now.phase is Phase.DOWN and now.cursor > was.cursor:
            # It was given up: whether it may be, the gaps' check says.
            continue
        if now.node != was.node or now.cursor < was.cursor:
            raise SimulationError(
                f"partition {partition} was at epoch {was.cursor} on {was.node} and is at epoch {now.cursor} on {now.node}, "
                "though its node lives; expected no roll-back"
            )


def check_gaps(before: JobState, after: JobState) -> None:
    """Nothing is skipped but what is kept for partitions without a node beyond the limit; the gap says exactly what."""
    if before.gaps is after.gaps:
        return
    limit, recovery = after.settings.most_epochs_kept, before.recovery
    for partition, gap in after.gaps.items():
        known = before.gaps.get(partition)
        if gap == known:
            continue
        since, phase = recovery.restore_point(partition), recovery.statuses[partition].phase
        is_allowed = after.settings.gives_up and limit is not None and recovery.head - since > limit
        if not is_allowed or phase not in (Phase.DOWN, Phase.STALLED):
            raise SimulationError(
                f"partition {partition}, {phase.name} at epoch {since} of {recovery.head}, was given up; expected not"
            )
        new = gap.epochs - (known.epochs if known else 0)
        if (gap.last, new) != (after.recovery.cuts.last, gap.last - since):
            raise SimulationError(
                f"partition {partition} skipped {new} epochs up to {gap.last}; expected {since + 1} to {after.recovery.cuts.last}"
            )


def is_overloaded(state: JobState) -> bool:
    """Whether a strategy that does not heed capacity has left a node more to do than it has time for: it never catches up."""
    recovery, used = state.recovery, _used(state.recovery)
    return not state.strategy.heeds_capacity and any(
        cost * state.settings.headroom >= recovery.capacity[node] for node, cost in used.items()
    )


def check_end(recovery: RecoveryState, world: World, gaps: Mapping[Partition, Gap]) -> None:
    """Faults have stopped and nodes suffice: everything is live, and every query partition published all epochs outside its gap."""
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
        gap = gaps.get(world.workload.outputs[query])
        skipped = [epoch for epoch, attempt in enumerate(published, start=1) if attempt == GAP]
        if len(skipped) > (gap.epochs if gap else 0) or (
            gap and skipped and not gap.first <= skipped[0] <= skipped[-1] <= gap.last
        ):
            raise SimulationError(
                f"query partition {query} lacks {len(skipped)} epochs; expected those of its gap at most: {gap}"
            )


def check_requests(state: JobState, requests: Requests) -> None:
    """Every request was answered: at most accepted once, then finally; and a node that was drained is empty."""
    statuses = state.recovery.statuses.values()
    for request, asked in requests.asked.items():
        verdicts = [answer.verdict for answer in requests.answers.get(request, [])]
        if [verdict for verdict in verdicts if verdict is not Verdict.ACCEPTED] != verdicts[-1:] or len(verdicts) not in (1, 2):
            raise SimulationError(f"request {request} was answered {verdicts}; expected at most ACCEPTED, then one final verdict")
        # One that was lost and came back is a new node.
        is_drained = isinstance(asked, Drain) and verdicts[-1] is Verdict.DONE and asked.node in state.draining
        if isinstance(asked, Drain) and is_drained and any(known.node == asked.node for known in statuses):
            raise SimulationError(f"node {asked.node} was drained and has partitions; expected none")


def check_scale(state: JobState, command: RequestNodes | ReleaseNodes) -> None:
    """No more nodes are asked for than the bounds allow, and only empty ones are given back, never in the middle of a recovery."""
    bounds = state.settings.scale
    if bounds is None:
        raise SimulationError(f"{type(command).__name__} was sent; expected none, since the number of nodes is not chosen here")
    if isinstance(command, RequestNodes):
        draining = len(state.draining.intersection(state.recovery.capacity))
        if not bounds.least <= command.total - draining <= bounds.most:
            raise SimulationError(
                f"{command.total} nodes were asked for; expected {bounds.least} to {bounds.most}, and {draining} drain"
            )
        return
    occupied = {known.node for known in state.recovery.statuses.values()} & set(command.nodes)
    if occupied or not state.recovery.all_live:
        raise SimulationError(f"nodes {command.nodes} were given back; expected them to be empty, and every partition to be live")
