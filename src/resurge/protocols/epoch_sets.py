"""Sets of epochs as spans: as small after 4,000 epochs of an outage as after four."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class EpochSet:
    """Epochs as disjoint spans in order, with a gap between each two."""

    spans: tuple[range, ...] = ()

    @staticmethod
    def of(epochs: Iterable[int]) -> "EpochSet":
        """The set of some epochs.

        >>> EpochSet.of([3, 1, 2, 7])
        EpochSet(spans=(range(1, 4), range(7, 8)))
        """
        spans = []
        for _, run in groupby(enumerate(sorted(set(epochs))), key=lambda item: item[1] - item[0]):
            found = [epoch for _, epoch in run]
            spans.append(range(found[0], found[-1] + 1))
        return EpochSet(tuple(spans))

    def __contains__(self, epoch: int) -> bool:
        return any(epoch in span for span in reversed(self.spans))

    def with_span(self, added: range) -> "EpochSet":
        """The set with some more epochs in a row."""
        if not added:
            return self
        before = [span for span in self.spans if span.stop < added.start]
        after = [span for span in self.spans if span.start > added.stop]
        touched = self.spans[len(before) : len(self.spans) - len(after)]
        start = min(added.start, *(span.start for span in touched)) if touched else added.start
        stop = max(added.stop, *(span.stop for span in touched)) if touched else added.stop
        return EpochSet((*before, range(start, stop), *after))

    def without_span(self, removed: range) -> "EpochSet":
        """The set without some epochs in a row."""
        if not removed:
            return self
        parts = (
            part
            for span in self.spans
            for part in (range(span.start, min(span.stop, removed.start)), range(max(span.start, removed.stop), span.stop))
        )
        return EpochSet(tuple(part for part in parts if part))

    def last_missing(self, wanted: range) -> int | None:
        """The last of the wanted epochs that is not in the set; None if all are.

        >>> EpochSet((range(1, 4), range(7, 8))).last_missing(range(1, 8))
        6
        """
        epoch = wanted.stop - 1
        for span in reversed(self.spans):
            if epoch in span:
                epoch = span.start - 1
        return epoch if epoch >= wanted.start else None
