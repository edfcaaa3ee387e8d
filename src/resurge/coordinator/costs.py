"""What partitions cost, in columns: an epoch changes all of them at once."""

import math
from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.protocols.recovery import Phase, RecoveryState, Roster

Floats = npt.NDArray[np.float64]


class Costs(Mapping[Partition, float]):
    """The cost of each partition: by operator one number for each key group, NaN where there is none.

    >>> costs = Costs.of({Partition("counts", KeyGroup(1)): 0.5}, [Partition("counts", KeyGroup(group)) for group in range(3)])
    >>> costs[Partition("counts", KeyGroup(1))], len(costs), costs == {Partition("counts", KeyGroup(1)): 0.5}
    (0.5, 1, True)
    """

    def __init__(self, columns: Mapping[str, Floats]) -> None:
        self.columns = columns
        self._whole: dict[Partition, float] | None = None

    @classmethod
    def of(cls, known: Mapping[Partition, float], partitions: Iterable[Partition]) -> "Costs":
        """What is known of some partitions."""
        if isinstance(known, Costs):
            return known
        sizes: dict[str, int] = {}
        for operator, group in (*partitions, *known):
            sizes[operator] = max(sizes.get(operator, 0), group + 1)
        columns = {operator: np.full(size, np.nan) for operator, size in sizes.items()}
        for (operator, group), cost in known.items():
            columns[operator][group] = cost
        return cls(columns)

    def __getitem__(self, partition: Partition) -> float:
        operator, group = partition
        column = self.columns.get(operator)
        cost = float(column[group]) if column is not None and group < column.size else np.nan
        if np.isnan(cost):
            raise KeyError(partition)
        return cost

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._made())

    def __len__(self) -> int:
        return sum(int(np.count_nonzero(~np.isnan(column))) for column in self.columns.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Costs):
            return super().__eq__(other)
        mine, others = self.columns, other.columns
        return self is other or (
            mine.keys() == others.keys()
            and all(mine[name] is others[name] or np.array_equal(mine[name], others[name], equal_nan=True) for name in mine)
        )

    __hash__ = None  # type: ignore[assignment]

    def items(self) -> ItemsView[Partition, float]:
        """All partitions with their costs."""
        return self._made().items()

    def values(self) -> ValuesView[float]:
        """All costs."""
        return self._made().values()

    def smoothed(self, newest: Mapping[str, Floats], weight: float) -> "Costs":
        """With what was measured now, which counts so much beside what was known."""
        columns = dict(self.columns)
        for operator, measured in newest.items():
            known = columns.get(operator, np.full(measured.size, np.nan))
            size = max(known.size, measured.size)
            known, now = _sized(known, size), _sized(measured, size)
            both = np.where(np.isnan(known), now, (1 - weight) * known + weight * now)
            columns[operator] = np.where(np.isnan(now), known, both)
        return Costs(columns)

    def _made(self) -> dict[Partition, float]:
        if self._whole is None:
            self._whole = {
                Partition(operator, KeyGroup(group)): cost
                for operator, column in self.columns.items()
                for group, cost in enumerate(column.tolist())
                if not math.isnan(cost)
            }
        return self._whole


def _sized(column: Floats, size: int) -> Floats:
    return column if column.size >= size else np.concatenate([column, np.full(size - column.size, np.nan)])


@dataclass(frozen=True)
class Places:
    """Where partitions are, in columns: by operator the number of each key group's node, -1 for one that is on none or stalls.

    Also how many are in each phase, how many each node holds, and the lowest cursor of those that are not live.
    """

    nodes: tuple[NodeId, ...]
    columns: Mapping[str, npt.NDArray[np.int64]]
    phases: Mapping[str, dict[str, int]]
    held: Mapping[NodeId, dict[str, int]]
    cursors: Mapping[str, int]


@lru_cache(maxsize=4)
def places(roster: Roster) -> Places:
    """Where the partitions of a roster are; looked at once for each."""
    nodes = tuple(sorted(roster.occupied))
    numbers, columns = {node: number for number, node in enumerate(nodes)}, dict[str, list[int]]()
    phases, held, cursors = dict[str, dict[str, int]](), dict[NodeId, dict[str, int]](), dict[str, int]()
    for (operator, group), known in roster.statuses.items():
        column, counts = columns.setdefault(operator, []), phases.setdefault(operator, {})
        column += [-1] * (group + 1 - len(column))
        counts[known.phase.value] = counts.get(known.phase.value, 0) + 1
        if known.phase is not Phase.LIVE:
            cursors[operator] = min(cursors.get(operator, known.cursor), known.cursor)
        if known.node is not None:
            mine = held.setdefault(known.node, {})
            mine[operator] = mine.get(operator, 0) + 1
            column[group] = -1 if known.phase is Phase.STALLED else numbers[known.node]
    return Places(nodes, {name: np.array(column) for name, column in columns.items()}, phases, held, cursors)


def used(recovery: RecoveryState) -> tuple[dict[str, float], dict[NodeId, float]]:
    """What the partitions that are up cost, by operator and by node; a stalled one does nothing."""
    known, costs = places(recovery.roster), Costs.of(recovery.costs, recovery.graph.upstream)
    operators, by_node = dict[str, float](), np.zeros(len(known.nodes))
    for operator, place in known.columns.items():
        column = _sized(costs.columns.get(operator, np.empty(0)), place.size)[: place.size]
        counts = (place >= 0) & ~np.isnan(column)
        operators[operator] = float(column[counts].sum())
        by_node += np.bincount(place[counts], weights=column[counts], minlength=len(known.nodes))
    return operators, dict(zip(known.nodes, by_node.tolist(), strict=True))
