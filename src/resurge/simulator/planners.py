"""The planners in virtual time: they answer at once."""

from resurge.coordinator import copy_placement, move_requests, scheduling
from resurge.coordinator.commands import Plan, PlanCopies, PlanMoves
from resurge.coordinator.inputs import CopiesPlanned, MovesPlanned, Planned


def planned(command: Plan | PlanMoves | PlanCopies) -> Planned | MovesPlanned | CopiesPlanned:
    """What the planner that is asked answers."""
    if isinstance(command, PlanMoves):
        return move_requests.answered(command.number, command.problem)
    if isinstance(command, PlanCopies):
        return copy_placement.answered(command)
    answer = scheduling.answered(command.recovery, command.strategy, command.copies)
    placement = {str(partition): node for partition, node in answer.placement.items()}
    return Planned(command.number, placement, list(answer.queries))
