"""Requests to move load: which are refused and why, what they mean, and what the planner is asked."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from resurge.coordinator.commands import Respond
from resurge.coordinator.inputs import MovesPlanned
from resurge.coordinator.scheduling import FILLED
from resurge.coordinator.state import JobState
from resurge.errors import InfeasibleError
from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.model.requests import CPA, CPAL, PRECOPY, WAYS, Answer, Balance, Drain, Move
from resurge.planning.key_group_moves import ALGORITHMS, DEFAULT_ALGORITHM, MoveNode, MovePartition, MovePlan, MoveProblem
from resurge.planning.problem_files import nearest
from resurge.protocols.recovery import Phase

TOLERANCE = 1e-9
WAITING = "(no node)"
"""Where the planner finds partitions that are down; no node that runs tasks is called so."""
LEAST_MOVES, MOST_SHARE = 4, 0.25
"""A balance moves this many partitions at most, or this share of them: what is left is for the next time."""


def responded(state: JobState, request: str, answer: Answer) -> JobState:
    """Answer who asked; the balancer asks nobody."""
    if not request:
        return state
    state, number = state.numbered()
    return state.sending(Respond(number, request, answer))


def refusal(state: JobState, asked: Move | Drain | Balance) -> str:
    """Why a request cannot be carried out, in one line; empty if it can."""
    if state.migration is not None:
        other = f"request {state.migration.request}" if state.migration.request else "the balancer's own"
        return f"another move is under way ({other}); try again when it has ended"
    if isinstance(asked, Move) and (problem := _wrong_move(state, asked)):
        return problem
    if isinstance(asked, Drain) and (problem := _wrong_node(state, asked.node)):
        return problem
    if isinstance(asked, Drain) and not set(state.recovery.capacity) - state.draining - {asked.node}:
        return f"node {asked.node} is the only one that could run the job; add a node before it is drained"
    if not state.recovery.all_live:
        return "some partitions are not live; try again when all queries are back"
    return without_state(state, asked) or fits(state, moves_asked(state, asked)) if isinstance(asked, Move) else ""


def without_state(state: JobState, asked: Move) -> str:
    """Why a target has nothing to begin with, where it needs a copy or a checkpoint; empty if it has."""
    for partition, target in moves_asked(state, asked).items() if asked.how in (CPA, CPAL) else ():
        if not state.recovery.restore_point(partition) and (partition, target) not in state.copies:
            return (
                f"{partition} has no copy on {target} and no checkpoint yet, and {asked.how} needs one of them; "
                f"wait for the first checkpoint, or move by {PRECOPY}"
            )
    return ""


def _wrong_move(state: JobState, asked: Move) -> str:
    groups: dict[str, list[int]] = {}
    for partition in state.recovery.graph.upstream:
        groups.setdefault(partition.operator, []).append(partition.key_group)
    if asked.how not in WAYS:
        return f"a move cannot be made by {asked.how!r}{nearest(asked.how, WAYS)}; expected {' or '.join(WAYS)}"
    if asked.operator not in groups:
        known = ", ".join(groups) or "none"
        return f"no operator with state is called {asked.operator!r}{nearest(asked.operator, groups)} (there are: {known})"
    unknown = sorted(set(asked.key_groups) - set(groups[asked.operator]))
    if unknown:
        return f"operator {asked.operator} has key groups 0 to {max(groups[asked.operator])}, and none of number {unknown[0]}"
    if asked.target in state.draining:
        return f"node {asked.target} drains; choose another target"
    return _wrong_node(state, asked.target)


def _wrong_node(state: JobState, node: NodeId) -> str:
    if node in state.recovery.capacity:
        return ""
    known = ", ".join(sorted(state.recovery.capacity)) or "none"
    return f"there is no node {node!r}{nearest(node, state.recovery.capacity)} (up and warm: {known})"


def moves_asked(state: JobState, asked: Move) -> dict[Partition, NodeId]:
    """The partitions that a move is about and that are elsewhere."""
    groups = set(asked.key_groups)
    return {
        partition: asked.target
        for partition, known in state.recovery.statuses.items()
        if partition.operator == asked.operator
        and (not groups or KeyGroup(partition.key_group) in groups)
        and known.node != asked.target
    }


def fits(state: JobState, moves: Mapping[Partition, NodeId], filled: float = 1.0) -> str:
    """Why some target has no room for what would come, within so much of its capacity; empty if all have."""
    recovery = state.recovery
    used: dict[NodeId, float] = {}
    for partition, known in recovery.statuses.items():
        node = moves.get(partition, known.node)
        if node is not None and (partition in moves or known.phase is not Phase.STALLED):
            used[node] = used.get(node, 0.0) + recovery.costs.get(partition, 0.0)
    for target in sorted(set(moves.values())):
        capacity = recovery.capacity.get(target, 0.0)
        if used[target] > filled * capacity * (1 + TOLERANCE) + TOLERANCE:
            return (
                f"node {target} may spend {capacity:.3g} CPU seconds per second and would have to spend {used[target]:.3g}; "
                "move fewer key groups, or choose another node"
            )
    return ""


def move_problem(state: JobState, drains: NodeId | None, waiting: Collection[Partition] = ()) -> MoveProblem:
    """What the planner is asked: a node is to be emptied, or else load is to be even.

    Partitions that wait for room are, to the planner, on a node that is to be emptied.
    """
    recovery = state.recovery
    nodes = {
        str(node): MoveNode(
            capacity if node not in state.draining else max(state.members[node].capacity, TOLERANCE),
            state.domains[node] or None,
            drains=node in state.draining,
        )
        for node, capacity in sorted(recovery.capacity.items())
    }
    if waiting:
        nodes[WAITING] = MoveNode(TOLERANCE, drains=True)
    levels = recovery.graph.levels
    copies: dict[Partition, list[str]] = {}
    for partition, node in sorted(state.copies):
        if node in recovery.capacity and node not in state.draining and node != recovery.statuses[partition].node:
            copies.setdefault(partition, []).append(str(node))
    partitions = {
        str(partition): MovePartition(
            str(known.node) if partition not in waiting else WAITING,
            recovery.costs.get(partition, 0.0),
            levels[partition],
            copies=tuple(copies.get(partition, ())),
        )
        for partition, known in recovery.statuses.items()
    }
    most = None if drains is None else 0
    if drains is None:
        most = max(LEAST_MOVES, int(MOST_SHARE * len(partitions)))
    return MoveProblem(nodes, partitions, most_moves=most)


def answered(number: int, problem: MoveProblem, sizes_bytes: Mapping[Partition, int] | None = None) -> MovesPlanned:
    """Let the planner answer; whoever carries commands out calls this where it has time, with the sizes of states if known."""
    if sizes_bytes is not None:
        sized = {
            name: replace(partition, state_bytes=sizes_bytes.get(Partition.parse(name), 0))
            for name, partition in problem.partitions.items()
        }
        problem = replace(problem, partitions=sized)
    try:
        plan = _with_copies_or_without(problem) if WAITING not in problem.nodes else _filling_nodes(problem)
    except InfeasibleError as error:
        return MovesPlanned(number, refusal=str(error))
    moves = {move.partition: NodeId(move.target) for move in plan.moves}
    shipped_bytes = None if sizes_bytes is None else plan.shipped_bytes
    return MovesPlanned(number, moves, "", plan.imbalance, plan.imbalance_before, shipped_bytes)


def _with_copies_or_without(problem: MoveProblem) -> MovePlan:
    """A node that must be emptied is emptied, also where partitions then come to lie beside their copies, which go elsewhere."""
    try:
        return ALGORITHMS[DEFAULT_ALGORITHM](problem)
    except InfeasibleError:
        if not any(partition.copies for partition in problem.partitions.values()):
            raise
        bare = {name: replace(partition, copies=()) for name, partition in problem.partitions.items()}
        return ALGORITHMS[DEFAULT_ALGORITHM](replace(problem, partitions=bare))


def _filling_nodes(problem: MoveProblem) -> MovePlan:
    """Room for what waits is made within capacity, or else by filling nodes a little more."""
    try:
        return _with_copies_or_without(problem)
    except InfeasibleError:
        nodes = {name: replace(node, capacity=FILLED * node.capacity) for name, node in problem.nodes.items()}
        return _with_copies_or_without(replace(problem, nodes=nodes))


def summary(state: JobState, moves: Mapping[Partition, NodeId], answer: MovesPlanned) -> str:
    """What a balance would do, in one line."""
    if not moves:
        return f"no move would be worth it (imbalance {answer.imbalance_before:.2f}): nothing would move"
    listed = ", ".join(f"{partition} to {node}" for partition, node in moves.items())
    return (
        f"{len(moves)} would move, for an imbalance of {answer.imbalance:.2f} instead of {answer.imbalance_before:.2f}: {listed}"
    )
