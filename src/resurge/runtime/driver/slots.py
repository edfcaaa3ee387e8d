"""The slots of a job: which of them runs which partition of its node. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from resurge.model.names import NodeId

Chains = Mapping[str, tuple[int, int]]
"""The operators that may have a slot each: the number of the chain that an operator is in, of how many at its level."""
BY_KEY_GROUP: Chains = MappingProxyType({})
"""No operator has a slot for itself."""
LEAST_CHAINS_PER_SLOT = 16
"""With so many chains of operators for each slot of a node, one slot has all key groups of an operator. What the slots have to do is even
enough then, and what windows over the same stream compute once per slot is little against what each of them does."""


@dataclass(frozen=True)
class Slots:
    """The slots of a job: each belongs to a node, and each node's partitions are shared out among its slots.

    That is by key group, or by chain of operators if there are many.
    """

    nodes: tuple[NodeId, ...]
    cpu_share: Mapping[NodeId, float]
    chains: Chains = field(default_factory=lambda: BY_KEY_GROUP)

    def of(self, node: NodeId, operator: str, key_group: int) -> int:
        """The slot that runs a partition on a node."""
        mine = self._slots[node]
        number, chains = self.chains.get(operator, (0, 0))
        return mine[(number if chains >= LEAST_CHAINS_PER_SLOT * len(mine) else key_group) % len(mine)]

    def first(self, node: NodeId) -> int:
        """The first slot of a node."""
        return self._slots[node][0]

    @cached_property
    def _slots(self) -> Mapping[NodeId, list[int]]:
        """The slots of each node; asked for every partition, so that looking at all slots each time would take long."""
        found: dict[NodeId, list[int]] = {}
        for index, owner in enumerate(self.nodes):
            found.setdefault(owner, []).append(index)
        return found
