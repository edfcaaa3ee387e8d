"""What the planner of copies is asked, and when: measured loads, where partitions are, and which nodes may have their copies."""

from dataclasses import replace

from resurge.coordinator.commands import PlanCopies
from resurge.coordinator.copying import Copying
from resurge.coordinator.inputs import CopiesPlanned
from resurge.coordinator.state import JobState
from resurge.errors import ResurgeError
from resurge.model.names import NodeId, Partition
from resurge.planning.checkpoint_placement import ALGORITHMS, CheckpointProblem, PlacementNode
from resurge.protocols.recovery import RecoveryState

MOST_SAMPLES = 60
MOST_EVERY = 32
"""Samples are taken every so many epochs at most: about half an hour of load, with epochs of a second, decides."""
CHANGED_LOAD = 0.2
"""Copies are placed anew when this part of the load is elsewhere than at the last time."""
THRESHOLD = 0.005
"""A placement stays while a new one would be better by less than this, times the load of all copies."""


def sampled(copying: Copying, recovery: RecoveryState) -> Copying:
    """With the loads of one more epoch; when there are many, every second one is dropped, then the oldest.

    Kept are parts of the whole load: what makes all tasks slower at once, such as a busy machine or a long epoch, says nothing of
    where load goes, and would hide that one partition's falls when another's rises.
    """
    copying = replace(copying, head=recovery.head, is_settled=False)
    if recovery.head % copying.every:
        return copying
    costs = [recovery.costs.get(partition, 0.0) for partition in recovery.graph.upstream]
    total = sum(costs) or 1.0
    loads = (*copying.loads, tuple(cost / total for cost in costs))
    if len(loads) <= MOST_SAMPLES:
        return replace(copying, loads=loads)
    if copying.every >= MOST_EVERY:
        return replace(copying, loads=loads[1:])
    return replace(copying, loads=loads[::2], every=2 * copying.every, samples=copying.samples // 2)


def check_problem(state: JobState) -> PlanCopies | None:
    """A question for the planner, if nodes, partitions' places or loads have changed since the last one."""
    copying, recovery = state.copying, state.recovery
    if not copying.loads or not _is_changed(state):
        return None
    copies = min(state.settings.copying.most, _possible(state))
    if not copies:
        return None
    names = [str(partition) for partition in recovery.graph.upstream]
    groups: dict[NodeId, list[str]] = {node: [] for node in sorted(recovery.capacity) if node not in state.draining}
    for partition in recovery.graph.upstream:
        node = recovery.statuses[partition].node
        if node is not None:
            groups.setdefault(node, []).append(str(partition))
    nodes = {str(node): PlacementNode(mine, state.domains[node]) for node, mine in groups.items()}
    current: dict[str, list[str]] = {}
    for partition, node in state.copies:
        if str(node) in nodes:
            current.setdefault(str(partition), []).append(str(node))
    loads = {name: list(samples) for name, samples in zip(names, zip(*copying.loads, strict=True), strict=True)}
    total = sum(sum(samples) / len(samples) for samples in loads.values())
    problem = CheckpointProblem(nodes, loads, copies, current=current, threshold=THRESHOLD * total * copies)
    return PlanCopies(state.next_number, problem, state.settings.copying.algorithm)


def _is_changed(state: JobState) -> bool:
    copying, recovery = state.copying, state.recovery
    nodes = frozenset(recovery.capacity) - state.draining
    if copying.nodes != nodes or copying.homes != recovery.roster.placed:
        return True
    # What correlates is known the better the longer it was measured.
    if len(copying.loads) >= 2 * copying.samples > 0:
        return True
    before, now = copying.loads[min(copying.samples, len(copying.loads)) - 1], copying.loads[-1]
    changed = sum(abs(new - old) for old, new in zip(before, now, strict=True))
    return changed > CHANGED_LOAD * max(sum(before), sum(now))


def _possible(state: JobState) -> int:
    """How many copies every partition can have: one in each other failure domain that has a node which does not drain."""
    domains = {state.domains[node] for node in state.recovery.capacity if node not in state.draining}
    homes = {state.domains[known.node] for known in state.recovery.statuses.values() if known.node is not None}
    return min((len(domains - {home}) for home in homes), default=0)


def is_apart(state: JobState, partition: Partition, node: NodeId, home: NodeId | None = None) -> bool:
    """Whether a node may have a copy: it does not fail with the partition's own."""
    home = home or state.recovery.statuses[partition].node
    if node not in state.members:
        return False
    return home is None or home not in state.members or state.domains[node] != state.domains[home]


def answered(question: PlanCopies) -> CopiesPlanned:
    """Let the planner answer; whoever carries commands out calls this where it has time."""
    try:
        plan = ALGORITHMS[question.algorithm](question.problem)
    except ResurgeError as error:
        return CopiesPlanned(question.number, refusal=str(error))
    placement = {group: [NodeId(node) for node in nodes] for group, nodes in plan.placement.items()}
    return CopiesPlanned(question.number, placement)
