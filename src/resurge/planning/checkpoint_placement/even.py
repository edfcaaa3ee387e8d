"""The usual placement: every node's copies spread evenly over the nodes that may have them."""

from functools import partial

import numpy as np

from resurge.planning.checkpoint_placement.existing import kept_copies
from resurge.planning.checkpoint_placement.feasible import feasible
from resurge.planning.checkpoint_placement.plan import CheckpointPlan, checkpoint_plan
from resurge.planning.checkpoint_placement.problem import CheckpointProblem
from resurge.planning.solvers.balanced_assignment import AssignmentProblem, Filling


def plan(problem: CheckpointProblem) -> CheckpointPlan:
    """Spread the copies of each node's key groups evenly, by number, over the nodes that may have them.

    Guarantees the constraints and nothing about the score; a current copy that may stay where it is stays. It is ELASTIC's
    even distribution (each allowed node equally likely) without the dice; when all nodes run equally many key groups,
    no node gets more than its even share of copies, rounded up. Takes time proportional to copies times nodes.
    """
    problem.require_feasible()
    return checkpoint_plan(problem, "even", feasible(problem, partial(_spread, problem)), optimal=None)


def _spread(problem: CheckpointProblem, assignment: AssignmentProblem) -> Filling | None:
    filling = kept_copies(problem)
    nodes = len(assignment.classes)
    from_home = np.zeros((nodes, nodes), dtype=np.int64)
    for item, bins in enumerate(filling.bins):
        from_home[problem.home[item], bins] += 1
    for item in _homes_in_turn(problem, filling.missing()):
        home = problem.home[item]
        while len(filling.bins[item]) < problem.copies:
            possible = np.flatnonzero(filling.suits(item) & filling.fits(item))
            if not len(possible):
                return None
            distance = (possible - home - 1) % nodes
            order = np.lexsort((distance, from_home.sum(axis=0)[possible], from_home[home, possible]))
            chosen = int(possible[order[0]])
            filling.put(item, chosen)
            from_home[home, chosen] += 1
    return filling


def _homes_in_turn(problem: CheckpointProblem, items: list[int]) -> list[int]:
    """One key group of each node, then the next of each: so that no node's copies find all others taken."""
    seen = np.zeros(len(problem.nodes), dtype=np.int64)
    turns = []
    for item in items:
        turns.append((int(seen[problem.home[item]]), int(problem.home[item]), item))
        seen[problem.home[item]] += 1
    return [item for _, _, item in sorted(turns)]
