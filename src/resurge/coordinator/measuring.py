"""What partitions cost and nodes may do, from what jobs reported."""

from dataclasses import replace

import numpy as np

from resurge.coordinator.costs import Costs
from resurge.coordinator.inputs import CPU_S, JobResult
from resurge.coordinator.scheduling import with_costs
from resurge.coordinator.state import JobState

WEIGHT_OF_NEWEST = 0.5
"""Three epochs say nearly all: load that goes elsewhere is evened out by what it is now, not by a mixture with what it was."""
MOST_SHARE_OF_READING = 0.5
"""Reading is shared by all nodes; were it to take more than half of them, it is measured wrongly."""


def priced(state: JobState) -> JobState:
    """The recovery state with measured costs, and with each node's part of reading the sources taken off its capacity."""
    recovery = state.recovery
    total = sum(member.capacity for member in state.members.values())
    share = min(state.reading_cost / total, MOST_SHARE_OF_READING) if total else 0.0
    # A node that drains takes nothing new, however empty it is.
    capacity = {node: 0.0 if node in state.draining else state.members[node].capacity * (1 - share) for node in recovery.capacity}
    costs = state.costs
    if not isinstance(costs, Costs) or len(costs) < len(recovery.statuses):
        # Before anything was measured, partitions are taken to be alike and to fill half of what is there.
        usual = sum(costs.values()) / len(costs) if costs else total / 2 / max(1, len(recovery.statuses))
        costs = {partition: costs.get(partition, usual) for partition in recovery.graph.upstream}
    if capacity == recovery.capacity and costs == recovery.costs:
        return state
    return replace(state, recovery=with_costs(replace(recovery, capacity=capacity), costs))


def measured(state: JobState, result: JobResult, seconds: float) -> JobState:
    """CPU seconds per second: of each partition, and of reading and parsing."""
    if not result.cpu_s and not result.reading_cpu_s:
        return state
    newest = {operator: np.frombuffer(column, CPU_S).astype(np.float64) / seconds for operator, column in result.cpu_s.items()}
    costs = state.costs
    if newest:
        costs = Costs.of(costs, state.recovery.graph.upstream).smoothed(newest, WEIGHT_OF_NEWEST)
    reading = result.reading_cpu_s / seconds
    if state.reading_cost:
        reading = (1 - WEIGHT_OF_NEWEST) * state.reading_cost + WEIGHT_OF_NEWEST * reading
    return priced(replace(state, costs=costs, reading_cost=reading))
