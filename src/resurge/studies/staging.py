"""The papers' failures as scenes, and which nodes die in them: alike on a real cluster and on a simulated one. Pure."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from resurge.model.names import NodeId
from resurge.protocols.recovery import Facts
from resurge.studies.scenes import ANYWHERE, DOWNSTREAM, UPSTREAM, Scene

BEST_CASE = "best-case"
STRATEGIES = ("incremental", "blocking", "eager", "source-replay", BEST_CASE)
FEW = 2
MOST_IN_TURN = 3
MOST_TRIES = 20


@dataclass(frozen=True)
class Staging:
    """A failure: so many nodes die at once, or with a gap between two; replacements start so long after the first of them."""

    nodes: int = 10
    kill: int = 8
    arrivals_s: tuple[float, ...] = ()
    gap_s: float = 0.0
    turn_s: float = 20.0
    early_s: float = 1.0
    chosen: tuple[str, ...] = STRATEGIES

    def figures(self) -> Mapping[str, Sequence[Scene]]:
        """The scenes of every figure, by its name."""
        return {
            "strategies": self._strategies(),
            "places": self._places(),
            "kills": self._kills(),
            "turns": self._turns(),
            "overload": self._overload(),
        }

    def _strategies(self) -> list[Scene]:
        """INCREMENTAL's figure 12 and PROGRESSIVE's figure 5: the same failure for everyone."""
        usual = [
            Scene(name, name.replace(BEST_CASE, "incremental"), self.kill, self.arrivals_s, gap_s=self.gap_s)
            for name in self.chosen
        ]
        early = (self.early_s,) * len(self.arrivals_s)
        return [replace(scene, arrivals_s=early) if scene.name == BEST_CASE else scene for scene in usual]

    def _places(self) -> list[Scene]:
        """Figures 13 and 14: few nodes, upstream or downstream in the topology, incremental and blocking."""
        kill = min(FEW, self.nodes - 1)
        return [
            Scene(f"{name}-{place}", name, kill, self.arrivals_s[-kill:], place)
            for place in (UPSTREAM, DOWNSTREAM)
            for name in ("incremental", "blocking")
        ]

    def _kills(self) -> list[Scene]:
        """Figure 15: half as many nodes, and all of them, from the upper end of the topology and from the lower."""
        return [
            Scene(f"{kill}-{place}", "incremental", kill, self.arrivals_s[:kill], place)
            for place in (UPSTREAM, DOWNSTREAM)
            for kill in sorted({max(1, self.kill // 2), self.kill})
        ]

    def _turns(self) -> list[Scene]:
        """Figure 10: one, two and three nodes die in turn, and everything is replayed each time; or only what was lost."""
        most = min(MOST_IN_TURN, self.nodes - 1)
        replayed = [Scene(f"source-replay-{kill}", "source-replay", kill, (), gap_s=self.turn_s) for kill in range(1, most + 1)]
        return [*replayed, Scene(f"incremental-{most}", "incremental", most, (), gap_s=self.turn_s)]

    def _overload(self) -> list[Scene]:
        """Figure 11: everything goes on at once on the nodes that are left, be they enough or too few; nobody replaces the others."""
        few = min(FEW, self.nodes - 1)
        return [Scene(f"eager-{kill}", "eager", kill, ()) for kill in sorted({few, min(self.kill, self.nodes - 1)})]


def _leaves_some(facts: Facts, dead: Sequence[NodeId]) -> bool:
    left = {partition for partition, known in facts.standing.items() if known.node not in dead}
    return any(need.partitions <= left for need in facts.graph.queries.values())


def victims(facts: Facts, scene: Scene, seed: int) -> list[NodeId]:
    """As many nodes as the scene wants: at random by seed, those in the wanted place first.

    If all may be anywhere, at random among those choices that leave some query alone, so that it shows what others' recovery
    costs; if there are any.
    """
    order, rng = sorted(facts.capacity), random.Random(seed)
    tries = [rng.sample(order, len(order)) for _ in range(MOST_TRIES)]
    spared = (shuffled for shuffled in tries if _leaves_some(facts, shuffled[: scene.kill]))
    shuffled = tries[0] if scene.place != ANYWHERE else next(spared, tries[0])
    # Partitions without anything above them are the upper end of the topology.
    upper = {known.node for partition, known in facts.standing.items() if not facts.graph.upstream[partition]}
    if scene.place != ANYWHERE:
        shuffled.sort(key=lambda node: (node in upper) is (scene.place == DOWNSTREAM))
    return shuffled[: scene.kill]
