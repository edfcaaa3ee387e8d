"""Where every partition stands, without a look at each: whoever is live has taken all epochs up to the head."""

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from dataclasses import replace
from typing import TYPE_CHECKING

from resurge.model.names import NodeId, Partition

if TYPE_CHECKING:
    from resurge.protocols.recovery import PartitionStatus, Roster


class Statuses(Mapping[Partition, "PartitionStatus"]):
    """Every partition's status: as its roster has it, but those that are live have followed the head since."""

    def __init__(self, roster: "Roster", head: int) -> None:
        self.roster = roster
        self.head = head
        self._alike: dict[tuple[NodeId | None, int], PartitionStatus] = {}
        self._whole: dict[Partition, PartitionStatus] | None = None

    def __getitem__(self, partition: Partition) -> "PartitionStatus":
        if self._whole is not None:
            return self._whole[partition]
        known = self.roster.statuses[partition]
        return self._at_head(known) if partition in self.roster.live else known

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.roster.statuses)

    def __len__(self) -> int:
        return len(self.roster.statuses)

    def items(self) -> ItemsView[Partition, "PartitionStatus"]:
        """All partitions with their statuses."""
        return self._made().items()

    def values(self) -> ValuesView["PartitionStatus"]:
        """All statuses."""
        return self._made().values()

    def _made(self) -> "dict[Partition, PartitionStatus]":
        """Made when somebody looks at each, which no usual epoch does."""
        if self._whole is None:
            live = self.roster.live
            self._whole = {
                partition: self._at_head(known) if partition in live else known
                for partition, known in self.roster.statuses.items()
            }
        return self._whole

    def _at_head(self, known: "PartitionStatus") -> "PartitionStatus":
        """Partitions of a node mostly stand alike: one value serves them all."""
        alike = known.node, known.published
        if alike not in self._alike:
            self._alike[alike] = replace(known, cursor=self.head, published=max(self.head, known.published))
        return self._alike[alike]
