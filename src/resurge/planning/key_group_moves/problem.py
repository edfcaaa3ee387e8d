"""Which partitions should move where: what is given, what is feasible, and what a placement is worth."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from resurge.errors import ProblemError
from resurge.planning import problem_files

CAPACITY_TOLERANCE = 1e-9


@dataclass(frozen=True)
class MoveNode:
    """What a node may do (CPU seconds per second), what fails with it, and whether everything must leave it."""

    capacity: float
    domain: str | None = None
    drains: bool = False


@dataclass(frozen=True)
class MovePartition:
    """Where a partition runs, what it costs (CPU seconds per second), its level, the size of its state, where copies of it lie."""

    node: str
    cost: float
    level: int = 0
    state_bytes: int = 0
    copies: Sequence[str] = ()


@dataclass(frozen=True)
class MoveProblem:
    """Nodes, the partitions that they run, and what a placement must keep.

    All moves of a plan take effect together. A node that takes a partition ends within its capacity; one that is too full
    already may stay so, but takes nothing. A partition goes where a copy of it lies, or to a failure domain without one.
    No two partitions of a set in `apart` come to share a failure domain. At most `most_moves` partitions move, besides those
    of nodes that drain.

    Levels run one after another and each waits for its slowest node, so the score is the sum over levels of the highest
    utilisation, plus what the moves cost a node on average: `move_cost` for each, and `byte_cost` for each byte shipped (none
    where a copy lies), over the number of nodes. Lower is better.

    >>> nodes = {"n1": MoveNode(1.0), "n2": MoveNode(1.0)}
    >>> partitions = {"count/0": MovePartition("n1", 0.4), "count/1": MovePartition("n1", 0.4)}
    >>> problem = MoveProblem(nodes, partitions, move_cost=0.1)
    >>> problem.score({"count/0": "n1", "count/1": "n1"}), problem.score({"count/0": "n1", "count/1": "n2"})
    (0.8, 0.45)
    """

    nodes: Mapping[str, MoveNode]
    partitions: Mapping[str, MovePartition]
    apart: Sequence[Sequence[str]] = ()
    most_moves: int | None = None
    move_cost: float = 0.01
    byte_cost: float = 1e-11

    def __post_init__(self) -> None:
        nodes = _nodes(self.nodes)
        partitions = _partitions(self.partitions, nodes)
        apart = _apart(self.apart, partitions)
        if self.most_moves is not None:
            problem_files.whole(self.most_moves, "most_moves", at_least=0)
        problem_files.finite_non_negative(self.move_cost, "move_cost")
        problem_files.finite_non_negative(self.byte_cost, "byte_cost")
        object.__setattr__(self, "nodes", MappingProxyType(nodes))
        object.__setattr__(self, "partitions", MappingProxyType(partitions))
        object.__setattr__(self, "apart", apart)

    @classmethod
    def from_json(cls, document: object) -> "MoveProblem":
        """Build the problem from a decoded problem file; refuse missing and misspelt fields."""
        fields = problem_files.as_object(document, "the problem")
        optional = ("apart", "most_moves", "move_cost", "byte_cost")
        problem_files.require_fields(fields, required=("nodes", "partitions"), optional=optional)
        nodes = problem_files.as_object(fields["nodes"], "nodes")
        for name, node in nodes.items():
            where = f"nodes[{name!r}]"
            problem_files.require_fields(problem_files.as_object(node, where), ("capacity",), ("domain", "drains"), where)
        partitions = problem_files.as_object(fields["partitions"], "partitions")
        known = ("level", "state_bytes", "copies")
        for name, partition in partitions.items():
            where = f"partitions[{name!r}]"
            problem_files.require_fields(problem_files.as_object(partition, where), ("node", "cost"), known, where)
        if "most_moves" in fields:
            problem_files.whole(fields["most_moves"], "most_moves", at_least=0)
        return cls(
            **{
                **{str(name): value for name, value in fields.items()},
                "nodes": {name: MoveNode(**node) for name, node in nodes.items()},
                "partitions": {name: MovePartition(**partition) for name, partition in partitions.items()},
            }
        )

    def score(self, placement: Mapping[str, str]) -> float:
        """Sum over levels of the highest utilisation, plus the cost of the moves; lower is better."""
        return self.table.score(self.indices(placement))

    def indices(self, placement: Mapping[str, str]) -> NDArray[np.int64]:
        """A placement of all partitions as numbers of nodes."""
        node_at = self.table.node_at
        return np.array([node_at[placement[name]] for name in self.partitions], dtype=np.int64)

    @cached_property
    def table(self) -> "MoveTable":
        """The problem as bare arrays."""
        return move_table(self)


@dataclass(frozen=True)
class MoveTable:
    """A problem as arrays: partitions and nodes have numbers, in the order of the problem.

    `is_allowed` says where each partition may be, `move_price` what a move there adds to the score.
    """

    node_names: tuple[str, ...]
    partition_names: tuple[str, ...]
    home: NDArray[np.int64]
    cost: NDArray[np.float64]
    level: NDArray[np.int64]
    level_count: int
    capacity: NDArray[np.float64]
    domain: NDArray[np.int64]
    drains: NDArray[np.bool_]
    is_allowed: NDArray[np.bool_]
    move_price: NDArray[np.float64]
    apart: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def node_at(self) -> dict[str, int]:
        """The number of each node."""
        return {name: index for index, name in enumerate(self.node_names)}

    @cached_property
    def limit(self) -> NDArray[np.float64]:
        """The capacity, with room for rounding errors."""
        return self.capacity * (1 + CAPACITY_TOLERANCE)

    def utilisation(self, where: NDArray[np.int64]) -> NDArray[np.float64]:
        """By level and node, the share of the node's capacity that the level takes."""
        loads = np.zeros((self.level_count, len(self.node_names)))
        np.add.at(loads, (self.level, where), self.cost)
        return np.asarray(loads / self.capacity)

    def price(self, where: NDArray[np.int64]) -> float:
        """What the moves to a placement cost."""
        return float(self.move_price[np.arange(len(where)), where].sum()) if len(where) else 0.0

    def score(self, where: NDArray[np.int64]) -> float:
        """The score of a placement."""
        return float(self.utilisation(where).max(axis=1, initial=0.0).sum()) + self.price(where)

    def imbalance(self, where: NDArray[np.int64]) -> float:
        """The highest utilisation of a node over that of all nodes that stay together; 1 if there is no load."""
        stays, total = ~self.drains, float(self.cost.sum())
        if not stays.any() or total == 0:
            return 1.0
        return float(self.utilisation(where).sum(axis=0).max()) / (total / float(self.capacity[stays].sum()))


def move_table(problem: MoveProblem) -> MoveTable:
    """Number everything."""
    nodes, partitions = list(problem.nodes.values()), list(problem.partitions.values())
    node_at = {name: index for index, name in enumerate(problem.nodes)}
    numbers: dict[object, int] = {}
    # A tuple cannot be the name of a domain, so a node without a domain shares its own with nobody.
    keys = [(name,) if node.domain is None else node.domain for name, node in problem.nodes.items()]
    domain = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    home = np.array([node_at[partition.node] for partition in partitions], dtype=np.int64)
    drains = np.array([node.drains for node in nodes], dtype=np.bool_)
    has_copy = np.zeros((len(partitions), len(nodes)), dtype=np.bool_)
    for index, partition in enumerate(partitions):
        has_copy[index, [node_at[name] for name in partition.copies]] = True
    beside_copy = np.zeros_like(has_copy)
    for index in np.flatnonzero(has_copy.any(axis=1)).tolist():
        beside_copy[index] = np.isin(domain, domain[has_copy[index]])
    is_home = np.zeros_like(has_copy)
    is_home[np.arange(len(partitions)), home] = True
    sizes = np.array([partition.state_bytes for partition in partitions], dtype=np.float64)
    shipped = np.where(has_copy, 0.0, sizes[:, None])
    levels = {level: index for index, level in enumerate(sorted({partition.level for partition in partitions}))}
    at = {name: index for index, name in enumerate(problem.partitions)}
    apart: dict[int, tuple[int, ...]] = {}
    for names in problem.apart:
        for name in names:
            others = tuple(at[other] for other in names if other != name)
            apart[at[name]] = tuple(dict.fromkeys((*apart.get(at[name], ()), *others)))
    return MoveTable(
        tuple(problem.nodes),
        tuple(problem.partitions),
        home,
        np.array([partition.cost for partition in partitions], dtype=np.float64),
        np.array([levels[partition.level] for partition in partitions], dtype=np.int64),
        len(levels),
        np.array([node.capacity for node in nodes], dtype=np.float64),
        domain,
        drains,
        (is_home | has_copy | ~beside_copy) & ~drains,
        np.where(is_home, 0.0, (problem.move_cost + problem.byte_cost * shipped) / max(1, len(nodes))),
        MappingProxyType(apart),
    )


def _nodes(value: object) -> dict[str, MoveNode]:
    nodes = {}
    for name, node in problem_files.as_object(value, "nodes").items():
        where = f"nodes[{name!r}]"
        if not isinstance(node, MoveNode):
            raise ProblemError(f"{where} must be a MoveNode, got {problem_files.shown(node)}")
        problem_files.finite_positive(node.capacity, f"{where}['capacity']")
        if node.domain is not None:
            problem_files.as_name(node.domain, f"{where}['domain']")
        if not isinstance(node.drains, bool):
            raise ProblemError(f"{where}['drains'] must be true or false, got {problem_files.shown(node.drains)}")
        nodes[name] = node
    return nodes


def _partitions(value: object, nodes: Mapping[str, MoveNode]) -> dict[str, MovePartition]:
    partitions = {}
    for name, partition in problem_files.as_object(value, "partitions").items():
        where = f"partitions[{name!r}]"
        if not isinstance(partition, MovePartition):
            raise ProblemError(f"{where} must be a MovePartition, got {problem_files.shown(partition)}")
        problem_files.known_name(partition.node, nodes, f"{where}['node']", "node")
        problem_files.finite_non_negative(partition.cost, f"{where}['cost']")
        problem_files.whole(partition.level, f"{where}['level']", at_least=0)
        problem_files.whole(partition.state_bytes, f"{where}['state_bytes']", at_least=0)
        copies = problem_files.as_list(partition.copies, f"{where}['copies']")
        for copy in copies:
            problem_files.known_name(copy, nodes, f"{where}['copies']", "node")
        repeated = [copy for copy, count in Counter((partition.node, *copies)).items() if count > 1]
        if repeated:
            raise ProblemError(
                f"{where}['copies'] has {repeated[0]!r} twice, or the partition runs there; a copy lies on a node of its own"
            )
        partitions[name] = MovePartition(partition.node, partition.cost, partition.level, partition.state_bytes, tuple(copies))
    return partitions


def _apart(value: object, partitions: Mapping[str, MovePartition]) -> tuple[tuple[str, ...], ...]:
    found = []
    for index, names in enumerate(problem_files.as_list(value, "apart")):
        where = f"apart[{index}]"
        known = [problem_files.known_name(name, partitions, where, "partition") for name in problem_files.as_list(names, where)]
        repeated = [name for name, count in Counter(known).items() if count > 1]
        if repeated:
            raise ProblemError(f"{where} has {repeated[0]!r} twice; give each partition once")
        found.append(tuple(known))
    return tuple(found)
