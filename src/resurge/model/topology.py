"""A topology: operators joined by streams, and the queries that read them. Plain, immutable, validated data."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import rustworkx as rx

from resurge.errors import TopologyError
from resurge.model.names import checked_name
from resurge.model.operator import Determinism, Operator, StreamShape


@dataclass(frozen=True)
class Query:
    """An output operator with its priority and sink."""

    name: str
    operator: str
    priority: int = 1
    sink: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class Topology:
    """Operators in topological order, queries by name; `build_topology` makes one."""

    name: str
    key_groups: int
    operators: Mapping[str, Operator]
    queries: Mapping[str, Query]
    shapes: Mapping[str, StreamShape]

    @cached_property
    def consumers(self) -> dict[str, tuple[str, ...]]:
        """The operators that read each operator's stream."""
        found: dict[str, list[str]] = {name: [] for name in self.operators}
        for operator in self.operators.values():
            for upstream in operator.inputs:
                found[upstream].append(operator.name)
        return {name: tuple(readers) for name, readers in found.items()}

    def upstream(self, name: str) -> frozenset[str]:
        """An operator and everything above it."""
        found = {name}
        waiting = [name]
        while waiting:
            for upstream in self.operators[waiting.pop()].inputs:
                if upstream not in found:
                    found.add(upstream)
                    waiting.append(upstream)
        return frozenset(found)

    def determinism(self, query: str) -> Determinism:
        """A query is of the class of its most general operator."""
        return max(self.operators[name].determinism for name in self.upstream(self.queries[query].operator))


def build_topology(name: str, key_groups: int, operators: list[Operator], queries: list[Query]) -> Topology:
    """Check everything that can be known before running, and freeze it."""
    checked_name(name, "the topology")
    if not isinstance(key_groups, int) or isinstance(key_groups, bool) or not 1 <= key_groups <= 32768:
        raise TopologyError(f"key_groups is {key_groups!r}; expected a whole number from 1 to 32768")
    by_name = _named(operators)
    ordered = _in_topological_order(by_name)
    shapes = _shapes(ordered)
    if not queries:
        raise TopologyError(f"topology {name!r} has no query: give at least one operator a query, or nothing would come out")
    return Topology(name, key_groups, ordered, _checked_queries(queries, ordered), shapes)


def _named(operators: list[Operator]) -> dict[str, Operator]:
    by_name: dict[str, Operator] = {}
    for operator in operators:
        checked_name(operator.name, "an operator")
        if operator.name in by_name:
            raise TopologyError(f"two operators are called {operator.name!r}; expected distinct names: rename one of them")
        by_name[operator.name] = operator
    for operator in operators:
        for upstream in operator.inputs:
            if upstream not in by_name:
                raise TopologyError(
                    f"operator {operator.name!r} reads {upstream!r}, which is not in the topology; "
                    f"it has {', '.join(sorted(by_name))}"
                )
    return by_name


def _in_topological_order(by_name: dict[str, Operator]) -> dict[str, Operator]:
    graph: rx.PyDiGraph = rx.PyDiGraph()
    index = {name: graph.add_node(name) for name in by_name}
    for operator in by_name.values():
        for upstream in operator.inputs:
            graph.add_edge(index[upstream], index[operator.name], None)
    if not rx.is_directed_acyclic_graph(graph):
        cycle = " -> ".join(graph[edge[0]] for edge in rx.digraph_find_cycle(graph))
        raise TopologyError(f"the streams form a cycle ({cycle}); expected a directed acyclic graph: remove one of its streams")
    order = rx.lexicographical_topological_sort(graph, key=str)
    return {name: by_name[name] for name in order}


def _shapes(ordered: dict[str, Operator]) -> dict[str, StreamShape]:
    shapes: dict[str, StreamShape] = {}
    for operator in ordered.values():
        shapes[operator.name] = operator.shape([shapes[upstream] for upstream in operator.inputs])
    return shapes


def _checked_queries(queries: list[Query], operators: Mapping[str, Operator]) -> dict[str, Query]:
    by_name: dict[str, Query] = {}
    for query in queries:
        if query.operator not in operators:
            raise TopologyError(f"query {query.name!r} reads {query.operator!r}, which is not in the topology")
        by_name[query.name] = check_query(query, by_name)
    return by_name


def check_query(query: Query, others: Collection[str]) -> Query:
    """A query with a good name, which none of the others has, and a priority from 1 to 10."""
    checked_name(query.name, "a query")
    if query.name in others:
        raise TopologyError(f"two queries are called {query.name!r}; expected distinct names: rename one of them")
    if not isinstance(query.priority, int) or isinstance(query.priority, bool) or not 1 <= query.priority <= 10:
        raise TopologyError(
            f"query {query.name!r} has priority {query.priority!r}; expected a whole number from 1 (least) to 10 (most valuable)"
        )
    return query
