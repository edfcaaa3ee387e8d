"""Requests to move load: which are refused and why, what they mean, and what the planner is asked."""

from collections.abc import Mapping

from resurge.coordinator.commands import Respond
from resurge.coordinator.inputs import MovesPlanned
from resurge.coordinator.state import JobState
from resurge.errors import InfeasibleError
from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.model.requests import WAYS, Answer, Balance, Drain, Move
from resurge.planning.key_group_moves import ALGORITHMS, DEFAULT_ALGORITHM, MoveNode, MovePartition, MoveProblem
from resurge.planning.problem_files import nearest

TOLERANCE = 1e-9
LEAST_MOVES, MOST_SHARE = 4, 0.1
"""A balance moves this many partitions at most, or this share of them: what is left is for the next time."""


def responded(state: JobState, request: str, answer: Answer) -> JobState:
    """Answer who asked; the balancer asks nobody."""
    if not request:
        return state
    state, number = state.numbered()
    return state.sending(Respond(number, request, answer))


def refusal(state: JobState, wish: Move | Drain | Balance) -> str:
    """Why a request cannot be carried out, in one line; empty if it can."""
    if state.migration is not None:
        other = f"request {state.migration.request}" if state.migration.request else "the balancer's own"
        return f"another move is under way ({other}); try again when it has ended"
    if isinstance(wish, Move) and (problem := _wrong_move(state, wish)):
        return problem
    if isinstance(wish, Drain) and (problem := _wrong_node(state, wish.node)):
        return problem
    if isinstance(wish, Drain) and not set(state.recovery.capacity) - state.draining - {wish.node}:
        return f"node {wish.node} is the only one that could run the job; add a node before it is drained"
    if not state.recovery.all_live:
        return "some partitions are not live; try again when all queries are back"
    return fits(state, wished(state, wish)) if isinstance(wish, Move) else ""


def _wrong_move(state: JobState, wish: Move) -> str:
    groups: dict[str, list[int]] = {}
    for partition in state.recovery.graph.upstream:
        groups.setdefault(partition.operator, []).append(partition.key_group)
    if wish.how not in WAYS:
        return f"a move cannot be made by {wish.how!r}{nearest(wish.how, WAYS)}; expected {' or '.join(WAYS)}"
    if wish.operator not in groups:
        known = ", ".join(groups) or "none"
        return f"no operator with state is called {wish.operator!r}{nearest(wish.operator, groups)} (there are: {known})"
    unknown = sorted(set(wish.key_groups) - set(groups[wish.operator]))
    if unknown:
        return f"operator {wish.operator} has key groups 0 to {max(groups[wish.operator])}, and none of number {unknown[0]}"
    if wish.target in state.draining:
        return f"node {wish.target} drains; choose another target"
    return _wrong_node(state, wish.target)


def _wrong_node(state: JobState, node: NodeId) -> str:
    if node in state.recovery.capacity:
        return ""
    known = ", ".join(sorted(state.recovery.capacity)) or "none"
    return f"there is no node {node!r}{nearest(node, state.recovery.capacity)} (up and warm: {known})"


def wished(state: JobState, wish: Move) -> dict[Partition, NodeId]:
    """The partitions that a move is about and that are elsewhere."""
    asked = set(wish.key_groups)
    return {
        partition: wish.target
        for partition, known in state.recovery.statuses.items()
        if partition.operator == wish.operator
        and (not asked or KeyGroup(partition.key_group) in asked)
        and known.node != wish.target
    }


def fits(state: JobState, moves: Mapping[Partition, NodeId]) -> str:
    """Why some target has no room for what would come; empty if all have."""
    recovery = state.recovery
    used: dict[NodeId, float] = {}
    for partition, known in recovery.statuses.items():
        node = moves.get(partition, known.node)
        if node is not None:
            used[node] = used.get(node, 0.0) + recovery.costs.get(partition, 0.0)
    for target in sorted(set(moves.values())):
        capacity = recovery.capacity.get(target, 0.0)
        if used[target] > capacity * (1 + TOLERANCE) + TOLERANCE:
            return (
                f"node {target} may spend {capacity:.3g} CPU seconds per second and would have to spend {used[target]:.3g}; "
                "move fewer key groups, or choose another node"
            )
    return ""


def move_problem(state: JobState, drains: NodeId | None) -> MoveProblem:
    """What the planner is asked: a node is to be emptied, or else load is to be even."""
    recovery = state.recovery
    nodes = {
        str(node): MoveNode(
            capacity if node not in state.draining else max(state.members[node].capacity, TOLERANCE),
            state.members[node].domain or None,
            drains=node in state.draining,
        )
        for node, capacity in sorted(recovery.capacity.items())
    }
    levels = recovery.graph.levels
    partitions = {
        str(partition): MovePartition(str(known.node), recovery.costs.get(partition, 0.0), levels[partition])
        for partition, known in recovery.statuses.items()
    }
    most = None if drains is None else 0
    if drains is None:
        most = max(LEAST_MOVES, int(MOST_SHARE * len(partitions)))
    return MoveProblem(nodes, partitions, most_moves=most)


def answered(number: int, problem: MoveProblem) -> MovesPlanned:
    """Let the planner answer; whoever carries commands out calls this where it has time."""
    try:
        plan = ALGORITHMS[DEFAULT_ALGORITHM](problem)
    except InfeasibleError as error:
        return MovesPlanned(number, refusal=str(error))
    moves = {move.partition: NodeId(move.target) for move in plan.moves}
    return MovesPlanned(number, moves, "", plan.imbalance, plan.imbalance_before)


def summary(state: JobState, moves: Mapping[Partition, NodeId], answer: MovesPlanned) -> str:
    """What a balance would do, in one line."""
    if not moves:
        return f"no move would be worth it (imbalance {answer.imbalance_before:.2f}): nothing would move"
    listed = ", ".join(f"{partition} to {node}" for partition, node in moves.items())
    return (
        f"{len(moves)} would move, for an imbalance of {answer.imbalance:.2f} instead of {answer.imbalance_before:.2f}: {listed}"
    )
