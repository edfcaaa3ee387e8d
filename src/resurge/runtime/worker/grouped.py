"""Rows of many key groups in one table: ordered by key group, with the place where each key group ends."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from resurge.operators.hashing import Hashes, key_group_ends, key_groups_of

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Grouped:
    """Rows ordered by key group; `ends` has one entry for each of all key groups."""

    frame: pl.DataFrame
    ends: Integers

    @classmethod
    def of(cls, frame: pl.DataFrame, groups: Integers, key_groups: int) -> "Grouped":
        """Order rows by their key groups; rows of one key group stay in their order."""
        if groups.size and np.any(groups[1:] < groups[:-1]):
            order = np.argsort(groups.astype(np.uint16), kind="stable")
            frame = frame[order]
        return cls(frame, np.cumsum(np.bincount(groups, minlength=key_groups)))

    @classmethod
    def by_hash(cls, frame: pl.DataFrame, hashes: Hashes, key_groups: int) -> "Grouped":
        """Order rows by the key groups of these hashes; those whose hashes are in order stay as they are."""
        if np.all(hashes[1:] >= hashes[:-1]):
            return cls(frame, key_group_ends(hashes, key_groups))
        return cls.of(frame, key_groups_of(hashes, key_groups), key_groups)

    @cached_property
    def counts(self) -> Integers:
        """Rows of each key group."""
        return np.diff(self.ends, prepend=0)

    @property
    def groups(self) -> Integers:
        """The key group of each row."""
        return np.repeat(np.arange(self.ends.size), self.counts)

    def within(self, wanted: Flags) -> "Grouped":
        """The rows of some key groups."""
        if not np.any(self.counts[~wanted]):
            return self
        counts = np.where(wanted, self.counts, 0)
        kept = np.repeat(wanted, self.counts)
        return Grouped(self.frame.filter(pl.Series(kept)), np.cumsum(counts))

    def of_group(self, group: int) -> pl.DataFrame:
        """The rows of one key group."""
        return self.frame.slice(int(self.ends[group] - self.counts[group]), int(self.counts[group]))

    def pieces(self) -> Iterator[tuple[int, pl.DataFrame]]:
        """Each key group that has rows, and its rows."""
        for group in np.flatnonzero(self.counts).tolist():
            yield group, self.of_group(group)


def together(pieces: list[Grouped]) -> Grouped:
    """The rows of several tables in one; a key group's rows stay in the order of the tables."""
    filled = [piece for piece in pieces if piece.frame.height] or pieces[:1]
    if len(filled) == 1:
        return filled[0]
    frame = pl.concat([piece.frame for piece in filled], rechunk=True)
    return Grouped.of(frame, np.concatenate([piece.groups for piece in filled]), filled[0].ends.size)


def from_groups(frames: Mapping[int, pl.DataFrame], key_groups: int) -> Grouped:
    """The tables of some key groups, at least one, in one."""
    counts = np.zeros(key_groups, dtype=np.int64)
    for group, frame in frames.items():
        counts[group] = frame.height
    return Grouped(pl.concat([frames[group] for group in sorted(frames)], rechunk=True), np.cumsum(counts))


def mask(groups: Sequence[int], key_groups: int) -> Flags:
    """Some key groups, as one flag for each of all."""
    found = np.zeros(key_groups, dtype=np.bool_)
    found[np.asarray(groups, dtype=np.int64)] = True
    return found
