"""Which failed queries come back first, with the capacity there is: what is given, what is feasible."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from resurge.errors import ProblemError
from resurge.planning import problem_files
from resurge.planning.solvers.set_union_knapsack import SetUnionKnapsack

RELATIVE_TOLERANCE = 1e-12
"""Fractions such as 0.1 + 0.2 against 0.3 may exceed a capacity by this share of it; whole numbers may not."""


@dataclass(frozen=True)
class Query:
    """A failed query (or query partition): its priority, and the failed partitions without which it has no output."""

    priority: float
    partitions: Sequence[str]


@dataclass(frozen=True)
class RecoveryProblem:
    """Failed partitions with costs, failed queries that share them, and the capacity for recovery.

    `nodes` is the free capacity of each node; without it a plan has no placement. Partitions are listed upstream
    first: the operator-centric baseline reads the topological order from their order.

    >>> problem = RecoveryProblem(
    ...     capacity=10, partitions={"a": 7, "b": 3, "c": 5}, queries={"q": Query(3, ["a", "b"]), "r": Query(2, ["c"])}
    ... )
    >>> problem.cost_of(["a", "b"]), problem.fits(10)
    (10, True)
    """

    capacity: float
    partitions: Mapping[str, float]
    queries: Mapping[str, Query]
    nodes: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        problem_files.finite_non_negative(self.capacity, "capacity")
        partitions = _numbers(self.partitions, "partitions")
        queries = problem_files.as_object(self.queries, "queries")
        checked = {name: _checked_query(query, name, partitions) for name, query in queries.items()}
        object.__setattr__(self, "partitions", partitions)
        object.__setattr__(self, "queries", MappingProxyType(checked))
        if self.nodes is not None:
            object.__setattr__(self, "nodes", _numbers(self.nodes, "nodes"))

    @classmethod
    def from_json(cls, document: object) -> "RecoveryProblem":
        """Build the problem from a decoded problem file; refuse missing and misspelt fields."""
        fields = problem_files.as_object(document, "the problem")
        problem_files.require_fields(fields, required=("capacity", "partitions", "queries"), optional=("nodes",))
        queries: dict[str, Query] = {}
        for name, value in problem_files.as_object(fields["queries"], "queries").items():
            where = f"queries[{name!r}]"
            query = problem_files.as_object(value, where)
            problem_files.require_fields(query, required=("priority", "partitions"), where=where)
            queries[name] = Query(query["priority"], query["partitions"])
        nodes = {"nodes": problem_files.as_object(fields["nodes"], "nodes")} if "nodes" in fields else {}
        return cls(fields["capacity"], fields["partitions"], queries, **nodes)

    @cached_property
    def is_whole(self) -> bool:
        """Whether every cost and capacity is a whole number, so that sums are exact."""
        numbers = [self.capacity, *self.partitions.values(), *(self.nodes or {}).values()]
        return all(isinstance(number, int) or number.is_integer() for number in numbers)

    @cached_property
    def usable_capacity(self) -> float:
        """The capacity, or what the nodes have free if that is less."""
        if self.nodes is None:
            return self.capacity
        return min(self.capacity, total(self.nodes.values()))

    def with_tolerance(self, capacity: float) -> float:
        """The capacity, with room for rounding errors where costs are fractions."""
        return capacity if self.is_whole else capacity * (1 + RELATIVE_TOLERANCE)

    def fits(self, cost: float) -> bool:
        """Whether a plan of this cost keeps the capacity."""
        return cost <= self.with_tolerance(self.usable_capacity)

    def cost_of(self, partitions: Iterable[str]) -> float:
        """The cost of recovering partitions; an integer if all their costs are."""
        return total(self.partitions[name] for name in partitions)

    def priority_of(self, queries: Iterable[str]) -> float:
        """The sum of the priorities of queries; an integer if all of them are."""
        return total(self.queries[name].priority for name in queries)

    @cached_property
    def query_names(self) -> tuple[str, ...]:
        """The queries' names; a query's place here is its item number in `knapsack`."""
        return tuple(self.queries)

    @cached_property
    def partition_names(self) -> tuple[str, ...]:
        """The partitions' names; a partition's place here is its element number in `knapsack`."""
        return tuple(self.partitions)

    @cached_property
    def knapsack(self) -> SetUnionKnapsack:
        """The problem for solvers that know nothing of streams: queries are items, partitions are elements.

        A partition that no node could take weighs infinitely much.
        """
        place_of = {name: place for place, name in enumerate(self.partition_names)}
        largest = None if self.nodes is None else self.with_tolerance(max(self.nodes.values(), default=-1))
        return SetUnionKnapsack.of(
            values=[float(query.priority) for query in self.queries.values()],
            weights=[float(cost) if largest is None or cost <= largest else float("inf") for cost in self.partitions.values()],
            elements_of=[[place_of[name] for name in query.partitions] for query in self.queries.values()],
            limit=float(self.with_tolerance(self.usable_capacity)),
        )


def total(numbers: Iterable[float]) -> float:
    """Sum exactly: an integer if all numbers are, else the float nearest to the true sum."""
    listed = list(numbers)
    if all(isinstance(number, int) for number in listed):
        return sum(listed)
    return math.fsum(listed)


def _checked_query(query: object, name: str, partitions: Mapping[str, float]) -> Query:
    where = f"queries[{name!r}]"
    if not isinstance(query, Query):
        raise ProblemError(f"{where} must be a Query, got {problem_files.shown(query)}")
    problem_files.finite_non_negative(query.priority, f"{where}.priority")
    listed = problem_files.as_list(query.partitions, f"{where}.partitions")
    for partition in listed:
        if not isinstance(partition, str) or partition not in partitions:
            problem_files.known_name(partition, partitions, f"{where}.partitions", "partition")
    return Query(query.priority, tuple(dict.fromkeys(listed)))


def _numbers(value: object, field: str) -> Mapping[str, float]:
    numbers = problem_files.as_object(value, field)
    for name, number in numbers.items():
        problem_files.finite_non_negative(number, f"{field}[{name!r}]")
    return MappingProxyType(dict(numbers))
