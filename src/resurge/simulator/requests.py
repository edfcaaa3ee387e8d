"""What simulated users ask for: any operator, key groups and node, now and then wrong ones."""

import random

from resurge.coordinator.inputs import DIRECT, PRECOPY, Balance, Drain, Move
from resurge.model.names import NodeId
from resurge.protocols.recovery import Facts
from resurge.simulator.faults import Ask, Wanted

WRONG = 0.05


def wish_of(fault: Ask, facts: Facts, request: str) -> Move | Drain | Balance:
    """The request, by the chance of its own."""
    rng = random.Random(fault.seed)
    node = _node(rng, facts)
    if fault.wanted in (Wanted.DRAIN, Wanted.RELEASE):
        return Drain(request, node)
    if fault.wanted in (Wanted.BALANCE, Wanted.DRY_RUN):
        return Balance(request, is_dry_run=fault.wanted is Wanted.DRY_RUN)
    partitions = list(facts.graph.upstream)
    operator = rng.choice(partitions).operator
    groups = [int(partition.key_group) for partition in partitions if partition.operator == operator]
    chosen = rng.sample(groups, rng.randint(0, len(groups)))
    if rng.random() < WRONG:
        operator, chosen = rng.choice((("nobody", chosen), (operator, [10**6])))
    return Move(request, operator, node, sorted(chosen), DIRECT if fault.wanted is Wanted.MOVE_DIRECTLY else PRECOPY)


def _node(rng: random.Random, facts: Facts) -> NodeId:
    up = sorted(facts.capacity)
    return rng.choice(up) if up and rng.random() > WRONG else NodeId("nowhere")
