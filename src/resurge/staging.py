"""Which nodes die in a staged failure: chosen from facts, alike on a real cluster and on a simulated one."""

import random

from resurge.model.names import NodeId
from resurge.model.scenes import ANYWHERE, DOWNSTREAM, Scene
from resurge.protocols.recovery import Facts


def victims(facts: Facts, scene: Scene, seed: int) -> list[NodeId]:
    """As many nodes as the scene wants: at random by seed, those in the wanted place first."""
    order = sorted(facts.capacity)
    shuffled = random.Random(seed).sample(order, len(order))
    # Partitions without anything above them are the upper end of the topology.
    upper = {known.node for partition, known in facts.standing.items() if not facts.graph.upstream[partition]}
    if scene.place != ANYWHERE:
        shuffled.sort(key=lambda node: (node in upper) is (scene.place == DOWNSTREAM))
    return shuffled[: scene.kill]
