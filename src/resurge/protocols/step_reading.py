"""Who reads the sources for a catch-up step, and how long that takes. Pure.

A step for a few partitions reads as much input as one for all of them, so other nodes help where it would take long.
"""

from collections.abc import Iterable, Mapping

from resurge.model.names import NodeId
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.recovery import RecoveryState


def epochs_read(recovery: RecoveryState, step: CatchUp) -> int:
    """How many epochs of input a step reads: those that a partition takes, or a shadow, which nothing else feeds."""
    upstream = recovery.graph.upstream
    takers = (*step.partitions.items(), *step.shadows.items())
    return len({epoch for partition, taken in takers if not upstream[partition] for epoch in taken})


def readers(
    recovery: RecoveryState, own: Iterable[NodeId], total_s: float, limit_s: float, live: Mapping[NodeId, float]
) -> frozenset[NodeId]:
    """The nodes that read beside a step's own: so many that none reads for longer than `limit_s`, if there are enough.

    Nodes without live partitions help first, then those with the least live load. `total_s` is how long one node would read alone.
    """
    capacity = recovery.capacity
    mine = frozenset(own)
    able, found = sum(capacity.get(node, 0.0) for node in mine), set[NodeId]()
    others = (node for node in capacity if node not in mine and capacity[node] > 0)
    for node in sorted(others, key=lambda node: (live.get(node, 0.0), node)):
        if able > 0 and total_s <= limit_s * able:
            break
        able += capacity[node]
        found.add(node)
    return frozenset(found)
