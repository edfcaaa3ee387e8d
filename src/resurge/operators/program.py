"""From a topology to what runs: levels of vertices joined by exchanges.

A vertex is an operator on one branch: a union disappears, and a stateless operator after it stands once per branch.
Operators joined by same-key streams share a level (`chained`), or each stands below its input (not chained), which lets
every operator be placed on a node of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import polars as pl

from resurge.model.operator import Operator, StreamShape
from resurge.model.topology import Topology
from resurge.operators.base import StatefulOperator, StatelessOperator
from resurge.operators.coding import canonical
from resurge.operators.combining import Combiner, shared
from resurge.operators.stateless import BadRows, LateSide, SourceOperator, Transform, Union

Delays = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Vertex:
    """An operator on one branch, at its level; `parent` is the vertex it reads directly, if it has no key.

    `delays` say how far its input's event time may lie behind each source's newest, `output_delays` the same of its output.
    """

    number: int
    operator: Operator
    level: int
    parent: int | None
    kept_key: tuple[str, ...] | None
    delays: Delays

    @property
    def is_stateful(self) -> bool:
        """Whether it has partitions of its own."""
        return isinstance(self.operator, StatefulOperator)

    @property
    def output_delays(self) -> Delays:
        """A keyed operator may hold rows back; what reads it must wait for them."""
        extra = self.operator.watermark_delay_us() if isinstance(self.operator, StatefulOperator) else 0
        return tuple((source, delay + extra) for source, delay in self.delays)


@dataclass(frozen=True)
class Exchange:
    """Rows (or combined parts) of one vertex, cut by key group, on their way to operators of a later level."""

    number: int
    vertex: int
    to_level: int
    key: tuple[str, ...]
    shape: StreamShape
    combiner: Combiner | None
    consumers: tuple[str, ...]

    @property
    def schema(self) -> pl.Schema:
        """The columns that travel."""
        return self.combiner.schema(self.shape) if self.combiner else self.shape.schema

    def outgoing(self, frame: pl.DataFrame, *beside: str) -> pl.DataFrame:
        """What travels of the vertex's rows: the rows, or their parts where the exchange combines; keys in one form.

        Columns `beside` those of the stream travel too; rows are combined only where these are the same.
        """
        rows = canonical(frame.select(*self.shape.schema, *beside), self.key)
        return rows if self.combiner is None else self.combiner.combine(rows, self.shape, beside)


@dataclass(frozen=True)
class Feed:
    """Where one input of a keyed operator comes from: exchanges and vertices of the same task, in a fixed order."""

    exchanges: tuple[int, ...] = ()
    vertices: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """A compiled topology."""

    topology: Topology
    vertices: tuple[Vertex, ...]
    exchanges: tuple[Exchange, ...]
    feeds: dict[str, tuple[Feed, ...]]
    query_vertices: dict[str, tuple[int, ...]]
    chained: bool
    levels: int = field(default=1)

    def at_level(self, level: int) -> list[Vertex]:
        """The vertices of a level, upstream first."""
        return [vertex for vertex in self.vertices if vertex.level == level]

    def stateful(self) -> list[Vertex]:
        """The vertices that have partitions."""
        return [vertex for vertex in self.vertices if vertex.is_stateful]

    def shape(self, vertex: int) -> StreamShape:
        """The shape of a vertex's output."""
        return self.topology.shapes[self.vertices[vertex].operator.name]

    def queries_by_vertex(self) -> dict[int, list[tuple[str, int]]]:
        """The queries that show a vertex's rows, each with the branch of its union that the vertex is."""
        found: dict[int, list[tuple[str, int]]] = {}
        for query, vertices in self.query_vertices.items():
            for branch, number in enumerate(vertices):
                found.setdefault(number, []).append((query, branch))
        return found

    def feeding(self, feed: Feed) -> list[int]:
        """The vertices whose rows a feed brings, by exchange or within the same task."""
        return [*(self.exchanges[index].vertex for index in feed.exchanges), *feed.vertices]

    def producers(self, operator: str) -> set[str]:
        """The keyed operators that feed this one directly (through stateless operators); sources are left out."""
        return {owner for owner in self._owners(operator) if owner is not None}

    def reads_sources(self, operator: str) -> bool:
        """Whether something comes to a keyed operator from a source (through stateless operators)."""
        return None in self._owners(operator)

    def _owners(self, operator: str) -> set[str | None]:
        return {self.owner(number) for feed in self.feeds[operator] for number in self.feeding(feed)}

    def owner(self, number: int) -> str | None:
        """The keyed operator in whose task a vertex runs; None for a source's."""
        vertex = self.vertices[number]
        while not vertex.is_stateful:
            if vertex.parent is None:
                return None
            vertex = self.vertices[vertex.parent]
        return vertex.operator.name

    def chains(self) -> list[list[list[str]]]:
        """By level, the keyed operators; those that read each other's rows in the same task are together."""
        found: list[list[list[str]]] = [[] for _ in range(self.levels)]
        chain_of: dict[str, list[str]] = {}
        for vertex in self.stateful():
            name = vertex.operator.name
            above = {self.owner(number) or name for feed in self.feeds[name] for number in feed.vertices}
            chains = {id(chain): chain for owner in sorted(above) if (chain := chain_of.get(owner)) is not None}
            mine = [other for chain in chains.values() for other in chain] + [name]
            found[vertex.level] = [chain for chain in found[vertex.level] if id(chain) not in chains] + [mine]
            chain_of |= dict.fromkeys(mine, mine)
        return found

    def branch(self, vertex: Vertex) -> int:
        """Which of its operator's branches a vertex is: there are several below a union."""
        return [other.number for other in self.vertices if other.operator.name == vertex.operator.name].index(vertex.number)

    def partitioned_operators(self) -> list[str]:
        """Names of keyed operators, upstream first."""
        return [vertex.operator.name for vertex in self.vertices if vertex.is_stateful]


def compile_topology(topology: Topology, *, chained: bool = True) -> Program:
    """Assign levels and make exchanges."""
    compiler = _Compiler(topology, chained)
    for operator in topology.operators.values():
        compiler.add(operator)
    return compiler.finish()


class _Compiler:
    def __init__(self, topology: Topology, chained: bool) -> None:
        self.topology = topology
        self.chained = chained
        self.vertices: list[Vertex] = []
        self.branches: dict[str, list[int]] = {}
        self.exchanges: dict[tuple[object, ...], Exchange] = {}
        self.feeds: dict[str, tuple[Feed, ...]] = {}

    def add(self, operator: Operator) -> None:
        """Add one operator; its inputs are there already."""
        if isinstance(operator, SourceOperator):
            self.branches[operator.name] = [self._vertex(operator, 0, None, None, ((operator.name, operator.watermark_us),))]
        elif isinstance(operator, Union):
            self.branches[operator.name] = [number for name in operator.inputs for number in self.branches[name]]
        elif isinstance(operator, StatelessOperator | BadRows | LateSide):
            parents = self.branches[operator.inputs[0]]
            # All branches have one watermark: which rows of a union are late does not depend on where they come from.
            delays = self._delays(parents)
            self.branches[operator.name] = [self._stateless(operator, parent, delays) for parent in parents]
        else:
            self.branches[operator.name] = [self._stateful(operator)]

    def finish(self) -> Program:
        """Number the exchanges and share combiners between windows over the same stream."""
        merged = _shared_exchanges(self.exchanges.values())
        number_of = {old: new for new, (_, olds) in enumerate(merged) for old in olds}
        exchanges = tuple(replace(exchange, number=index) for index, (exchange, _) in enumerate(merged))
        feeds = {
            name: tuple(replace(feed, exchanges=tuple(number_of[index] for index in feed.exchanges)) for feed in given)
            for name, given in self.feeds.items()
        }
        queries = {query.name: tuple(self.branches[query.operator]) for query in self.topology.queries.values()}
        levels = 1 + max(vertex.level for vertex in self.vertices)
        return Program(self.topology, tuple(self.vertices), exchanges, feeds, queries, self.chained, levels)

    def _vertex(self, operator: Operator, level: int, parent: int | None, key: tuple[str, ...] | None, delays: Delays) -> int:
        self.vertices.append(Vertex(len(self.vertices), operator, level, parent, key, delays))
        return len(self.vertices) - 1

    def _delays(self, numbers: Iterable[int]) -> Delays:
        """How far the event time of several branches together may lie behind each source's newest."""
        merged: dict[str, int] = {}
        for number in numbers:
            for source, delay in self.vertices[number].output_delays:
                merged[source] = max(merged.get(source, 0), delay)
        return tuple(merged.items())

    def _stateless(self, operator: Operator, parent: int, delays: Delays) -> int:
        above = self.vertices[parent]
        # A function may also change columns, whatever it is called with.
        keeps = isinstance(operator, Transform) and operator.kind == "filter" and operator.function is None
        return self._vertex(operator, above.level, parent, above.kept_key if keeps else None, delays)

    def _stateful(self, operator: Operator) -> int:
        keys = operator.keys() or ()
        level = 0
        for name, key in zip(operator.inputs, keys, strict=True):
            for number in self.branches[name]:
                level = max(level, self.vertices[number].level + (0 if self._is_local(number, key) else 1))
        feeds = []
        for name, key in zip(operator.inputs, keys, strict=True):
            exchanges, locals_ = [], []
            for number in self.branches[name]:
                if self._is_local(number, key) and self.vertices[number].level == level:
                    locals_.append(number)
                else:
                    exchanges.append(self._exchange(number, level, key, operator))
            feeds.append(Feed(tuple(exchanges), tuple(locals_)))
        self.feeds[operator.name] = tuple(feeds)
        output = self.topology.shapes[operator.name].schema
        keeps = isinstance(operator, StatefulOperator) and operator.keeps_key
        kept = keys[0] if keeps and all(key == keys[0] for key in keys) and all(name in output for name in keys[0]) else None
        delays = self._delays(number for name in operator.inputs for number in self.branches[name])
        return self._vertex(operator, level, None, kept, delays)

    def _is_local(self, number: int, key: tuple[str, ...]) -> bool:
        return self.chained and self.vertices[number].level > 0 and self.vertices[number].kept_key == key

    def _exchange(self, number: int, level: int, key: tuple[str, ...], operator: Operator) -> int:
        shape = self.topology.shapes[self.vertices[number].operator.name]
        combiner = operator.combiner(shape) if isinstance(operator, StatefulOperator) else None
        identity = (number, level, key, combiner, operator.name if combiner else None)
        if identity not in self.exchanges:
            self.exchanges[identity] = Exchange(len(self.exchanges), number, level, key, shape, combiner, (operator.name,))
        else:
            known = self.exchanges[identity]
            if operator.name not in known.consumers:
                self.exchanges[identity] = replace(known, consumers=(*known.consumers, operator.name))
        return self.exchanges[identity].number


def _shared_exchanges(exchanges: Iterable[Exchange]) -> list[tuple[Exchange, list[int]]]:
    """Exchanges that combine the same stream by the same key and time become one."""
    groups: dict[tuple[object, ...], list[Exchange]] = {}
    for exchange in exchanges:
        combiner = exchange.combiner
        how = None if combiner is None else (combiner.time, combiner.pane_us is None)
        groups.setdefault((exchange.vertex, exchange.to_level, exchange.key, how), []).append(exchange)
    merged = []
    for group in groups.values():
        consumers = tuple(dict.fromkeys(name for exchange in group for name in exchange.consumers))
        combiners = [exchange.combiner for exchange in group if exchange.combiner is not None]
        combiner = shared(combiners) if combiners else None
        merged.append((replace(group[0], consumers=consumers, combiner=combiner), [exchange.number for exchange in group]))
    return merged
