"""A user of chaos: asks a running job for moves, drains and other numbers of nodes at random, by seed, while other things happen to its nodes."""

import random
from collections.abc import Sequence

from resurge.model.names import NodeId
from resurge.model.requests import WAYS, Ask, Drain, Move, Scale
from resurge.runtime.driver.engine import Engine
from resurge.telemetry.events import ClusterScaled, EpochFinished, Event, MoveEnded

REQUESTED = ("move", "drain", "scale")
"""What chaos may ask a job for, besides what it does to nodes."""

LEAST_NODES, MOST_NODES = 2, 6
"""How few and how many nodes may be asked for."""


class Asking:
    """A telemetry listener that asks after every second epoch or so, and counts what came of it."""

    def __init__(self, engine: Engine, kinds: Sequence[str], seed: int) -> None:
        self.engine, self.kinds = engine, list(kinds)
        self.rng = random.Random(f"requests of {seed}")
        self.asked = self.moved = self.scaled = 0

    def listen(self, event: Event) -> None:
        """Ask now and then; one that comes in the middle of a recovery or of another move is refused, and nobody minds."""
        if isinstance(event, MoveEnded):
            self.moved += event.moved
        if isinstance(event, ClusterScaled):
            self.scaled += 1
        if isinstance(event, EpochFinished) and self.kinds and self.rng.random() < 0.5:
            self.asked += 1
            self.engine.ask(self._random_request(f"chaos-{self.asked}"))

    def _random_request(self, name: str) -> Ask:
        recovery, rng = self.engine.recovery, self.rng
        nodes = sorted(recovery.capacity) or [NodeId("none")]
        kind = rng.choice(self.kinds)
        if kind == "scale":
            return Scale(name, rng.randint(LEAST_NODES, MOST_NODES))
        if kind == "drain":
            return Drain(name, rng.choice(nodes))
        partition = rng.choice(list(recovery.graph.upstream))
        return Move(name, partition.operator, rng.choice(nodes), [int(partition.key_group)], rng.choice(WAYS))
