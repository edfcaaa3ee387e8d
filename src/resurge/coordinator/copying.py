"""Copies of states on other nodes: what a user chose, and what is known of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from resurge.model.names import NodeId, Partition


@dataclass(frozen=True)
class CopySettings:
    """How many copies of each partition's state other nodes keep, and, by operator, where it is another number.

    They are refreshed at checkpoints or, with `every`, every so many epochs; `algorithm` places them.
    """

    copies: int = 0
    by_operator: Mapping[str, int] = field(default_factory=dict)
    every: int | None = None
    algorithm: str = "correlated"

    def of(self, operator: str) -> int:
        """How many copies an operator's partitions have."""
        return self.by_operator.get(operator, self.copies)

    @property
    def most(self) -> int:
        """The largest number of copies that some operator may have."""
        return max((self.copies, *self.by_operator.values()))


@dataclass(frozen=True)
class Copying:
    """Where copies of states are to lie, and what that was decided from.

    `targets` are the nodes of each partition's copies. `question` is the planner's, while it is open. `loads` are samples of all
    partitions' parts of the load, one every `every` epochs, the newest last; `head` is the last epoch that was looked at. `nodes` and `homes`
    are those that the planner was last asked for, when there were `samples`. Primaries keep what epochs after `kept_from` change,
    for copies that are not there yet. `size_bytes` are those of whole states, `refresh_bytes` what the last refresh sent. `unproven`
    are partitions that go on from a copy that no task has read yet.
    """

    targets: Mapping[Partition, tuple[NodeId, ...]] = field(default_factory=dict)
    question: int | None = None
    loads: tuple[tuple[float, ...], ...] = ()
    every: int = 1
    head: int = 0
    nodes: frozenset[NodeId] = frozenset()
    homes: tuple[tuple[str, NodeId | None], ...] = ()
    samples: int = 0
    kept_from: int = 0
    is_settled: bool = False
    not_before_epoch: int = 0
    size_bytes: Mapping[Partition, int] = field(default_factory=dict)
    refresh_bytes: Mapping[Partition, int] = field(default_factory=dict)
    unproven: frozenset[Partition] = frozenset()
