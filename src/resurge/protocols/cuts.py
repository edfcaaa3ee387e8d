"""Checkpoints as cuts: the states of all partitions that are live at one epoch, so that none waits for what is down. Pure.

Everything upstream of a live partition is live, so a cut is closed upstream. A partition restores from its newest cut. A cut is
kept while it is some partition's newest: whoever feeds that partition again begins with the states of the same cut.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from resurge.errors import ProtocolError
from resurge.model.names import Partition


@dataclass(frozen=True)
class Cut:
    """The states of some partitions at one epoch."""

    epoch: int
    partitions: frozenset[Partition]


@dataclass(frozen=True)
class Cuts:
    """The cuts in use, the oldest first; without any, every partition begins with nothing at epoch 0."""

    kept: tuple[Cut, ...] = field(default=())

    @staticmethod
    def whole(partitions: Iterable[Partition], epoch: int) -> "Cuts":
        """One cut with every partition."""
        return Cuts((Cut(epoch, frozenset(partitions)),))

    @cached_property
    def newest(self) -> Mapping[Partition, int]:
        """The epoch from which each partition restores."""
        return {partition: cut.epoch for cut in self.kept for partition in cut.partitions}

    @property
    def first(self) -> int:
        """The oldest epoch from which some partition restores: what came after it may be asked for again."""
        return self.kept[0].epoch if self.kept else 0

    @property
    def last(self) -> int:
        """The epoch of the newest cut."""
        return self.kept[-1].epoch if self.kept else 0

    def before(self, partition: Partition, epoch: int) -> int:
        """The newest cut with a partition that is not after an epoch: a shadow begins there.

        >>> a, b = Partition("a", 0), Partition("b", 0)
        >>> cuts = Cuts.whole((a, b), 3).with_cut(Cut(8, frozenset((a,))))
        >>> cuts.before(a, 9), cuts.before(a, 7), cuts.before(b, 9)
        (8, 3, 3)
        """
        if not self.kept:
            return 0
        for cut in reversed(self.kept):
            if cut.epoch <= epoch and partition in cut.partitions:
                return cut.epoch
        raise ProtocolError(f"no checkpoint in use has {partition} at epoch {epoch} or before; expected one")

    def with_cut(self, cut: Cut) -> "Cuts":
        """With one more cut, and without those that are nobody's newest any more.

        >>> a, b = Partition("a", 0), Partition("b", 0)
        >>> [kept.epoch for kept in Cuts.whole((a, b), 3).with_cut(Cut(8, frozenset((a, b)))).kept]
        [8]
        """
        if not cut.partitions:
            # A job without state has checkpoints too: its journal is trimmed by them.
            return self if self.newest else Cuts((cut,))
        if self.kept and cut.epoch < self.last:
            raise ProtocolError(f"a cut of epoch {cut.epoch} came; expected none before the newest one, epoch {self.last}")
        if self.kept and cut.epoch == self.last and not self.kept[-1].partitions <= cut.partitions:
            raise ProtocolError(f"a second cut of epoch {cut.epoch} lacks partitions of the first; expected all of them")
        if all(kept.partitions <= cut.partitions for kept in self.kept):
            return Cuts((cut,))
        return Cuts(in_use((*(kept for kept in self.kept if kept.epoch != cut.epoch), cut)))

    def completed(self, partitions: Collection[Partition]) -> "Cuts":
        """With the beginning of the job, where every partition has nothing, for those that no cut has."""
        if all(partition in self.newest for partition in partitions):
            return self
        return Cuts((Cut(0, frozenset(partitions)), *(cut for cut in self.kept if cut.epoch)))


def in_use(cuts: Iterable[Cut], versions: int = 1) -> tuple[Cut, ...]:
    """The cuts that are among so many newest ones of some partition, the oldest first.

    >>> a, b = Partition("a", 0), Partition("b", 0)
    >>> made = [Cut(1, frozenset((a, b))), Cut(2, frozenset((a, b))), Cut(3, frozenset((a,))), Cut(4, frozenset((a,)))]
    >>> [cut.epoch for cut in in_use(made)], [cut.epoch for cut in in_use(made, 2)]
    ([2, 4], [1, 2, 3, 4])
    """
    found: dict[int, Cut] = {}
    seen: dict[Partition, int] = {}
    for cut in sorted(cuts, key=lambda known: known.epoch, reverse=True):
        if any(seen.get(partition, 0) < versions for partition in cut.partitions):
            found[cut.epoch] = cut
        for partition in cut.partitions:
            seen[partition] = seen.get(partition, 0) + 1
    return tuple(found[epoch] for epoch in sorted(found))
