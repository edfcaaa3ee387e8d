"""Nodes as the runner reports them, as inputs of the coordinator; and the slots that jobs run in."""

from collections.abc import Collection, Mapping

from resurge.coordinator.inputs import Member as KnownMember
from resurge.coordinator.inputs import NodesChanged
from resurge.model.names import NodeId
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import Member, Runner
from resurge.runtime.driver.slots import Chains, Slots


class Membership:
    """Who is there, and how much each may do."""

    def __init__(self, runner: Runner, options: RunOptions) -> None:
        self.runner = runner
        self.options = options
        self.members: dict[NodeId, Member] = {}

    def first(self) -> dict[NodeId, KnownMember]:
        """The nodes that are there when a driver starts."""
        self.members = self.runner.members()
        return {node: self._known(member) for node, member in sorted(self.members.items())}

    def changed(self) -> NodesChanged | None:
        """The nodes that have gone and come since the last look; None if there are none."""
        before, self.members = self.members, self.runner.members()
        lost = sorted(before.keys() - self.members.keys())
        joined = {node: self._known(self.members[node]) for node in sorted(self.members.keys() - before.keys())}
        return NodesChanged(lost, joined) if lost or joined else None

    def lost(self, nodes: Collection[NodeId]) -> None:
        """A job has found these nodes to be gone; one that is there again under the same name has joined."""
        self.members = {node: member for node, member in self.members.items() if node not in nodes}

    def _known(self, member: Member) -> KnownMember:
        return KnownMember(member.cores * member.cpu_share * self.options.headroom, member.domain)

    def slots(self, needed: Collection[NodeId], chains: Chains, *, is_small: bool = False) -> Slots:
        """One slot per core of the nodes that are needed, in a fixed order of nodes; a single one for little work on one node."""
        nodes = [node for node in sorted(needed) if node in self.members]
        if is_small and len(nodes) == len(self.members) == 1 and self.runner.has_costly_slots:
            return Slots(tuple(nodes), self._shares(nodes))
        return Slots(tuple(n for n in nodes for _ in range(self.members[n].cores)), self._shares(nodes), chains)

    def _shares(self, nodes: list[NodeId]) -> Mapping[NodeId, float]:
        return {node: self.members[node].cpu_share for node in nodes}
