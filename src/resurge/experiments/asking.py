"""A user of chaos: asks a running job for moves and drains at random, by seed, while other things happen to its nodes."""

import random
from collections.abc import Sequence

from resurge.model.names import NodeId
from resurge.model.requests import WAYS, Ask, Drain, Move
from resurge.runtime.driver.engine import Engine
from resurge.telemetry.events import EpochFinished, Event, MoveEnded

REQUESTED = ("move", "drain")
"""What chaos may ask a job for, besides what it does to nodes."""


class Asking:
    """A telemetry listener that asks after every second epoch or so, and counts the partitions that moved."""

    def __init__(self, engine: Engine, kinds: Sequence[str], seed: int) -> None:
        self.engine, self.kinds = engine, list(kinds)
        self.rng = random.Random(f"requests of {seed}")
        self.asked = self.moved = 0

    def listen(self, event: Event) -> None:
        """Ask now and then; one that comes in the middle of a recovery or of another move is refused, and nobody minds."""
        if isinstance(event, MoveEnded):
            self.moved += event.moved
        if isinstance(event, EpochFinished) and self.kinds and self.rng.random() < 0.5:
            self.asked += 1
            self.engine.ask(self._wish(f"chaos-{self.asked}"))

    def _wish(self, name: str) -> Ask:
        recovery, rng = self.engine.recovery, self.rng
        nodes = sorted(recovery.capacity) or [NodeId("none")]
        if rng.choice(self.kinds) == "drain":
            return Drain(name, rng.choice(nodes))
        partition = rng.choice(list(recovery.graph.upstream))
        return Move(name, partition.operator, rng.choice(nodes), [int(partition.key_group)], rng.choice(WAYS))
