"""The baseline that looks at partitions, not queries: the cheapest one first, in topological order."""

import heapq
import itertools

from resurge.planning.recovery_schedule.plan import RecoveryPlan, plan_of_partitions
from resurge.planning.recovery_schedule.problem import RecoveryProblem


def plan(problem: RecoveryProblem) -> RecoveryPlan:
    """Recover the cheapest partition whose upstream partitions are recovered, until nothing more fits.

    The problem lists partitions upstream first: of two consecutive partitions of a query in that order, the first is
    upstream of the second. Guarantees nothing: it may spend everything on partitions that complete no query, and
    they are part of the plan and its cost. Costs O(entries x log partitions).
    """
    downstream, waiting = _streams(problem)
    ready = [(cost, name) for name, cost in problem.partitions.items() if not waiting[name]]
    heapq.heapify(ready)
    recovered: list[str] = []
    spent: float = 0
    while ready:
        cost, name = heapq.heappop(ready)
        if not problem.fits(spent + cost):
            break
        spent += cost
        recovered.append(name)
        for after in downstream[name]:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, (problem.partitions[after], after))
    return plan_of_partitions(problem, "operator-centric", recovered)


def _streams(problem: RecoveryProblem) -> tuple[dict[str, set[str]], dict[str, int]]:
    """For each partition, those next downstream of it, and how many upstream ones it waits for."""
    place_of = {name: place for place, name in enumerate(problem.partition_names)}
    downstream: dict[str, set[str]] = {name: set() for name in problem.partition_names}
    waiting = dict.fromkeys(problem.partition_names, 0)
    for query in problem.queries.values():
        ordered = sorted(query.partitions, key=place_of.__getitem__)
        for before, after in itertools.pairwise(ordered):
            if after not in downstream[before]:
                downstream[before].add(after)
                waiting[after] += 1
    return downstream, waiting
