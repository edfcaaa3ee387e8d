"""The output of one slot: what it has for a query in an epoch is one part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import polars as pl

from resurge.connectors.contracts import Sink, StagedPart


@dataclass
class Parts:
    """Collects rows by query, branch and epoch, with the key groups that they are of."""

    pieces: dict[tuple[str, int, int], list[tuple[pl.DataFrame, Sequence[int]]]] = field(default_factory=dict)

    def add(self, query: str, branch: int, epoch: int, frame: pl.DataFrame, groups: Sequence[int]) -> None:
        """Add rows of some key groups; those of a source have none."""
        self.pieces.setdefault((query, branch, epoch), []).append((frame, groups))

    def staged(self, sinks: Mapping[str, Sink], attempt: str, place: str) -> list[StagedPart]:
        """Stage each part, named by its attempt: it is shown as it was staged here, and never computed again."""
        made = []
        for (query, branch, epoch), pieces in self.pieces.items():
            frame = pl.concat([frame for frame, _ in pieces])
            part = sinks[query].stage(query, epoch, f"{attempt}-{branch}-{place}", attempt, frame)
            groups = tuple(sorted({group for _, mine in pieces for group in mine}))
            made.append(msgspec.structs.replace(part, key_groups=groups))
        return made
