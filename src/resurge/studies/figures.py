"""The failures of the papers' figures, and which nodes die in them: the same on a real cluster and on a simulated one. Pure."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from resurge.model.names import NodeId
from resurge.protocols.recovery import RecoveryState
from resurge.studies.failure_cases import ANYWHERE, DOWNSTREAM, UPSTREAM, FailureCase

BEST_CASE = "best-case"
STRATEGIES = ("incremental", "blocking", "eager", "source-replay", BEST_CASE)
FEW = 2
MOST_IN_TURN = 3
MOST_TRIES = 20


@dataclass(frozen=True)
class Figures:
    """A failure: so many nodes die at once, or with a gap between two; replacements start so long after the first of them."""

    nodes: int = 10
    kill: int = 8
    arrivals_s: tuple[float, ...] = ()
    gap_s: float = 0.0
    turn_s: float = 20.0
    early_s: float = 1.0
    chosen: tuple[str, ...] = STRATEGIES

    def figures(self) -> Mapping[str, Sequence[FailureCase]]:
        """The cases of every figure, by its name."""
        return {
            "strategies": self._strategies(),
            "places": self._places(),
            "kills": self._kills(),
            "turns": self._turns(),
            "overload": self._overload(),
        }

    def _strategies(self) -> list[FailureCase]:
        """INCREMENTAL's figure 12 and PROGRESSIVE's figure 5: the same failure for everyone."""
        usual = [
            FailureCase(name, name.replace(BEST_CASE, "incremental"), self.kill, self.arrivals_s, gap_s=self.gap_s)
            for name in self.chosen
        ]
        early = (self.early_s,) * len(self.arrivals_s)
        return [replace(case, arrivals_s=early) if case.name == BEST_CASE else case for case in usual]

    def _places(self) -> list[FailureCase]:
        """Figures 13 and 14: few nodes, upstream or downstream in the topology, incremental and blocking."""
        kill = min(FEW, self.nodes - 1)
        return [
            FailureCase(f"{name}-{place}", name, kill, self.arrivals_s[-kill:], place)
            for place in (UPSTREAM, DOWNSTREAM)
            for name in ("incremental", "blocking")
        ]

    def _kills(self) -> list[FailureCase]:
        """Figure 15: half as many nodes, and all of them, from the upper end of the topology and from the lower."""
        return [
            FailureCase(f"{kill}-{place}", "incremental", kill, self.arrivals_s[:kill], place)
            for place in (UPSTREAM, DOWNSTREAM)
            for kill in sorted({max(1, self.kill // 2), self.kill})
        ]

    def _turns(self) -> list[FailureCase]:
        """Figure 10: one, two and three nodes die in turn, and everything is replayed each time; or only what was lost."""
        most = min(MOST_IN_TURN, self.nodes - 1)
        replayed = [
            FailureCase(f"source-replay-{kill}", "source-replay", kill, (), gap_s=self.turn_s) for kill in range(1, most + 1)
        ]
        return [*replayed, FailureCase(f"incremental-{most}", "incremental", most, (), gap_s=self.turn_s)]

    def _overload(self) -> list[FailureCase]:
        """Figure 11: everything goes on at once on the nodes that are left, be they enough or too few; nobody replaces the others."""
        few = min(FEW, self.nodes - 1)
        return [FailureCase(f"eager-{kill}", "eager", kill, ()) for kill in sorted({few, min(self.kill, self.nodes - 1)})]


def _leaves_some(recovery: RecoveryState, dead: Sequence[NodeId]) -> bool:
    left = {partition for partition, known in recovery.statuses.items() if known.node not in dead}
    return any(need.partitions <= left for need in recovery.graph.queries.values())


def nodes_to_kill(recovery: RecoveryState, case: FailureCase, seed: int) -> list[NodeId]:
    """As many nodes as the case wants: at random by seed, those in the wanted place first.

    If all may be anywhere, at random among those choices that leave some query alone, so that it shows what others' recovery
    costs; if there are any.
    """
    order, rng = sorted(recovery.capacity), random.Random(seed)
    tries = [rng.sample(order, len(order)) for _ in range(MOST_TRIES)]
    spared = (shuffled for shuffled in tries if _leaves_some(recovery, shuffled[: case.kill]))
    shuffled = tries[0] if case.place != ANYWHERE else next(spared, tries[0])
    # Partitions without anything above them are the upper end of the topology.
    upper = {known.node for partition, known in recovery.statuses.items() if not recovery.graph.upstream[partition]}
    if case.place != ANYWHERE:
        shuffled.sort(key=lambda node: (node in upper) is (case.place == DOWNSTREAM))
    return shuffled[: case.kill]
