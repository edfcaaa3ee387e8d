"""Nodes as the runner reports them, turned into facts; and the costs of partitions, measured as they run."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from resurge.coordinator.scheduling import Strategy, after_loss, with_costs
from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.protocols import recovery
from resurge.protocols.recovery import Facts
from resurge.runtime.driver.job_plans import Slots
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import Member, Runner
from resurge.runtime.worker.messages import SlotReport

_WEIGHT_OF_NEWEST = 0.3


class Membership:
    """Who is there, how much each may do, and what each partition costs."""

    def __init__(self, runner: Runner, options: RunOptions) -> None:
        self.runner = runner
        self.options = options
        self.members: dict[NodeId, Member] = {}
        self.costs: dict[Partition, float] = {}
        self.reading_cost = 0.0
        self.strategy = Strategy(options.strategy, correlated_from=options.correlated_from, overfills_at_last=True)

    def observed(self, facts: Facts) -> Facts:
        """The facts with the nodes that are there now."""
        now = self.runner.members()
        lost = frozenset(facts.capacity) - frozenset(now)
        changed = self.lost(facts, lost) if lost else facts
        joined = {node: member for node, member in now.items() if node not in changed.capacity}
        self.members = now
        self._expect(len(now))
        if joined:
            changed = recovery.nodes_joined(changed, {node: self._capacity(member) for node, member in joined.items()})
        return changed

    def lost(self, facts: Facts, nodes: Iterable[NodeId]) -> Facts:
        """The facts without these nodes."""
        gone = frozenset(nodes)
        changed = after_loss(self.with_costs(facts), gone, self.strategy)
        self.members = {node: member for node, member in self.members.items() if node not in gone}
        return changed

    def _expect(self, nodes: int) -> None:
        """A blocking recovery waits for as many nodes as there ever were."""
        if nodes > self.strategy.nodes_wanted:
            self.strategy = replace(self.strategy, nodes_wanted=nodes)

    def _capacity(self, member: Member) -> float:
        return member.cores * member.cpu_share * self.options.headroom

    def with_costs(self, facts: Facts) -> Facts:
        """The facts with measured costs, and with each node's part of reading the sources taken off its capacity."""
        whole = {
            node: self._capacity(self.members[node]) if node in self.members else known for node, known in facts.capacity.items()
        }
        total = sum(whole.values())
        share = min(self.reading_cost / total, 0.5) if total else 0.0
        capacity = {node: value * (1 - share) for node, value in whole.items()}
        # Before anything was measured, partitions are taken to be alike and to fill half of what is there.
        usual = sum(self.costs.values()) / len(self.costs) if self.costs else total / 2 / max(1, len(facts.standing))
        return with_costs(replace(facts, capacity=capacity), {p: self.costs.get(p, usual) for p in facts.graph.upstream})

    def measured(self, reports: Iterable[SlotReport], seconds: float) -> None:
        """CPU seconds per second: of each partition, and of reading and parsing."""
        reading = 0.0
        for report in reports:
            if report.level == 0:
                reading += report.cpu_s
            for cohort in report.cohorts:
                for group, cpu_s in zip(cohort.key_groups, cohort.cpu_shares_s(), strict=True):
                    key = Partition(cohort.operator, KeyGroup(group))
                    self.costs[key] = _smoothed(self.costs.get(key), cpu_s / seconds)
        self.reading_cost = _smoothed(self.reading_cost or None, reading / seconds)

    def slots(self, facts: Facts, needed: Collection[NodeId] | None = None) -> Slots:
        """One slot per core of every node (or of those that are needed), in a fixed order of nodes."""
        wanted = needed or facts.capacity
        nodes = [node for node in sorted(wanted) if node in self.members]
        return Slots(tuple(n for n in nodes for _ in range(self.members[n].cores)), self._shares(nodes))

    def _shares(self, nodes: list[NodeId]) -> Mapping[NodeId, float]:
        return {node: self.members[node].cpu_share for node in nodes}


def _smoothed(known: float | None, newest: float) -> float:
    return newest if known is None else (1 - _WEIGHT_OF_NEWEST) * known + _WEIGHT_OF_NEWEST * newest
