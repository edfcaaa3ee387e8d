"""The simplest placement: each copy on the next node that may have it."""

from functools import partial

import numpy as np

from resurge.planning.checkpoint_placement.existing import kept_copies
from resurge.planning.checkpoint_placement.feasible import feasible
from resurge.planning.checkpoint_placement.plan import CheckpointPlan, checkpoint_plan
from resurge.planning.checkpoint_placement.problem import CheckpointProblem
from resurge.planning.solvers.balanced_assignment import AssignmentProblem, Filling


def plan(problem: CheckpointProblem) -> CheckpointPlan:
    """Put each copy on the first node after the key group's own that may have it (ELASTIC section 6, baseline).

    Guarantees the constraints and nothing about the score; a current copy that may stay where it is stays. Takes time
    proportional to copies times nodes.
    """
    problem.require_feasible()
    return checkpoint_plan(problem, "baseline", feasible(problem, partial(_next_nodes, problem)), optimal=None)


def _next_nodes(problem: CheckpointProblem, assignment: AssignmentProblem) -> Filling | None:
    filling = kept_copies(problem)
    for item in filling.missing():
        while len(filling.bins[item]) < problem.copies:
            possible = np.flatnonzero(filling.suits(item) & filling.fits(item))
            if not len(possible):
                return None
            distance = (possible - problem.home[item] - 1) % len(assignment.classes)
            filling.put(item, int(possible[np.argmin(distance)]))
    return filling
