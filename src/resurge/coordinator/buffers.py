"""What is buffered where: output that nodes keep for partitions which are not live, within a limit. A value."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from resurge.model.names import NodeId, Partition
from resurge.model.work import Job, Pair
from resurge.protocols.catch_up import Coverage, changed


@dataclass(frozen=True)
class Buffered:
    """What one attempt kept on one node: the epochs of each partition that ran there, for these partitions."""

    attempt: str
    node: NodeId
    produced: tuple[tuple[Partition, range], ...]
    kept_for: frozenset[Partition]
    size_bytes: int = 0


_Since = tuple[Coverage, tuple[Buffered, ...], tuple[Buffered, ...]]
"""A known coverage, and the buffers that were added and dropped since."""


@dataclass(frozen=True)
class Buffers:
    """All buffers on nodes that are up, the oldest first."""

    held: tuple[Buffered, ...] = ()
    _coverage: Coverage | None = field(default=None, init=False, repr=False, compare=False)
    _since: _Since = field(default=({}, (), ()), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_since", ({}, self.held, ()))

    def keep(self, job: Job, sizes_bytes: Mapping[NodeId, int]) -> "Buffers":
        """With what a job has buffered, on the nodes that produced it."""
        if not job.buffered_for:
            return self
        produced: dict[NodeId, list[tuple[Partition, range]]] = {}
        for partition, (node, epochs) in job.producers().items():
            if epochs:
                produced.setdefault(node, []).append((partition, epochs))
        kept_for = frozenset(job.buffered_for)
        new = tuple(
            Buffered(job.attempt, node, tuple(mine), kept_for, sizes_bytes.get(node, 0)) for node, mine in produced.items()
        )
        return self._changed((*self.held, *new), added=new)

    def without_nodes(self, nodes: Iterable[NodeId]) -> "Buffers":
        """Buffers on lost nodes are gone."""
        gone = frozenset(nodes)
        left = tuple(buffered for buffered in self.held if buffered.node not in gone)
        return self if len(left) == len(self.held) else Buffers(left)

    def after(self, epoch: int) -> "Buffers":
        """Those that have output of later epochs."""
        left = tuple(buffered for buffered in self.held if any(epochs.stop > epoch + 1 for _, epochs in buffered.produced))
        return self if len(left) == len(self.held) else Buffers(left)

    def without_producers(self, partitions: Collection[Partition]) -> "Buffers":
        """What these partitions produced is not asked for again: they have left the nodes that hold it."""
        if not any(partition in partitions for buffered in self.held for partition, _ in buffered.produced):
            return self
        return Buffers(
            tuple(
                replace(buffered, produced=tuple(each for each in buffered.produced if each[0] not in partitions))
                for buffered in self.held
            )
        )

    def excess(self, limit_bytes: int, in_use: Collection[Pair]) -> list[Buffered]:
        """The oldest buffers of nodes that hold too much, unless they are read now; shadows will replay their epochs instead."""
        sizes: dict[NodeId, int] = {}
        dropped: list[Buffered] = []
        for buffered in reversed(self.held):
            sizes[buffered.node] = sizes.get(buffered.node, 0) + buffered.size_bytes
            if sizes[buffered.node] > limit_bytes and not self._is_read(buffered, in_use):
                dropped.append(buffered)
        return dropped

    def without(self, dropped: Collection[Buffered]) -> "Buffers":
        """Without some of them."""
        if not dropped:
            return self
        return self._changed(tuple(buffered for buffered in self.held if buffered not in dropped), dropped=tuple(dropped))

    @property
    def size_bytes(self) -> int:
        """Bytes on all nodes."""
        return sum(buffered.size_bytes for buffered in self.held)

    def coverage(self, upstream: Mapping[Partition, frozenset[Partition]]) -> Coverage:
        """The epochs that buffers hold, from each partition for each other."""
        if not self.held:
            return {}
        if self._coverage is None:
            known, added, dropped = self._since
            object.__setattr__(self, "_coverage", changed(known, _pairs(added, upstream), _pairs(dropped, upstream)))
        return self._coverage or {}

    def _changed(
        self, held: tuple[Buffered, ...], added: tuple[Buffered, ...] = (), dropped: tuple[Buffered, ...] = ()
    ) -> "Buffers":
        """Other buffers, whose coverage follows from what is known of these: an outage may last for thousands of epochs."""
        known, more, fewer = self._since if self._coverage is None else (self._coverage, (), ())
        after = Buffers(held)
        object.__setattr__(after, "_since", (known, (*more, *added), (*fewer, *dropped)))
        return after

    @cached_property
    def nodes(self) -> frozenset[NodeId]:
        """The nodes that hold something."""
        return frozenset(buffered.node for buffered in self.held)

    @staticmethod
    def _is_read(buffered: Buffered, in_use: Collection[Pair]) -> bool:
        producers = {partition for partition, _ in buffered.produced}
        return any(above in producers and below in buffered.kept_for for above, below in in_use)


def _pairs(buffers: Iterable[Buffered], upstream: Mapping[Partition, frozenset[Partition]]) -> Iterator[tuple[Pair, range]]:
    """The epochs that buffers have from one partition for another."""
    for buffered in buffers:
        epochs_of = dict(buffered.produced)
        for below in buffered.kept_for:
            for above in upstream[below]:
                if above in epochs_of:
                    yield (above, below), epochs_of[above]
