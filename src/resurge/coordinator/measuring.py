"""What partitions cost and nodes may do, from what jobs reported."""

from collections.abc import Mapping
from dataclasses import replace

from resurge.coordinator.inputs import JobResult
from resurge.coordinator.scheduling import with_costs
from resurge.coordinator.state import JobState
from resurge.model.names import Partition

WEIGHT_OF_NEWEST = 0.3
MOST_SHARE_OF_READING = 0.5
"""Reading is shared by all nodes; were it to take more than half of them, it is measured wrongly."""


def priced(state: JobState) -> JobState:
    """The recovery state with measured costs, and with each node's part of reading the sources taken off its capacity."""
    recovery = state.recovery
    total = sum(member.capacity for member in state.members.values())
    share = min(state.reading_cost / total, MOST_SHARE_OF_READING) if total else 0.0
    # A node that drains takes nothing new, however empty it is.
    capacity = {node: 0.0 if node in state.draining else state.members[node].capacity * (1 - share) for node in recovery.capacity}
    # Before anything was measured, partitions are taken to be alike and to fill half of what is there.
    usual = sum(state.costs.values()) / len(state.costs) if state.costs else total / 2 / max(1, len(recovery.statuses))
    costs = state.costs if len(state.costs) == len(recovery.statuses) else _completed(state, usual)
    if capacity == recovery.capacity and costs == recovery.costs:
        return state
    return replace(state, recovery=with_costs(replace(recovery, capacity=capacity), costs))


def _completed(state: JobState, usual: float) -> Mapping[Partition, float]:
    return {partition: state.costs.get(partition, usual) for partition in state.recovery.graph.upstream}


def measured(state: JobState, result: JobResult, seconds: float) -> JobState:
    """CPU seconds per second: of each partition, and of reading and parsing."""
    if not result.cpu_s and not result.reading_cpu_s:
        return state
    costs = dict(state.costs)
    for name, cpu_s in result.cpu_s.items():
        partition = Partition.parse(name)
        costs[partition] = _smoothed(costs.get(partition), cpu_s / seconds)
    reading = _smoothed(state.reading_cost or None, result.reading_cpu_s / seconds)
    return priced(replace(state, costs=costs, reading_cost=reading))


def _smoothed(known: float | None, newest: float) -> float:
    return newest if known is None else (1 - WEIGHT_OF_NEWEST) * known + WEIGHT_OF_NEWEST * newest
