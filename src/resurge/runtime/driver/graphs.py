"""The partition graph of a program: who feeds whom, and what each query partition needs."""

from resurge.model.names import KeyGroup, Partition, query_partition
from resurge.operators.program import Program
from resurge.protocols.recovery import Graph, QueryNeed

UNQUERIED_PRIORITY = 0.001


def partition_graph(program: Program) -> Graph:
    """Partitions in topological order with what is directly upstream of each; every query partition with its priority."""
    groups = range(program.topology.key_groups)
    upstream: dict[Partition, frozenset[Partition]] = {}
    for operator in program.partitioned_operators():
        for group in groups:
            upstream[Partition(operator, KeyGroup(group))] = frozenset(_feeding(program, operator, group))
    has_source_queries = any(not set(map(program.owner, numbers)) - {None} for numbers in program.query_vertices.values())
    return Graph(upstream, _queries(program, upstream), has_source_queries)


def _feeding(program: Program, operator: str, group: int) -> list[Partition]:
    found: list[Partition] = []
    inputs = program.topology.operators[operator].keys() or ()
    for feed, key in zip(program.feeds[operator], inputs, strict=True):
        for number in program.feeding(feed):
            owner = program.owner(number)
            if owner is None:
                continue
            kept = program.vertices[number].kept_key == key
            wanted = [group] if kept else range(program.topology.key_groups)
            found += [Partition(owner, KeyGroup(other)) for other in wanted]
    return found


def _queries(program: Program, upstream: dict[Partition, frozenset[Partition]]) -> dict[str, QueryNeed]:
    queries: dict[str, QueryNeed] = {}
    needed: set[Partition] = set()
    for name, numbers in program.query_vertices.items():
        owners = {owner for owner in map(program.owner, numbers) if owner is not None}
        for group in range(program.topology.key_groups) if owners else ():
            closure = _closure([Partition(owner, KeyGroup(group)) for owner in owners], upstream)
            queries[query_partition(name, group)] = QueryNeed(program.topology.queries[name].priority, closure)
            needed |= closure
    for partition in upstream:
        if partition not in needed:
            queries[f"{partition} (no query)"] = QueryNeed(UNQUERIED_PRIORITY, _closure([partition], upstream))
    return queries


def _closure(partitions: list[Partition], upstream: dict[Partition, frozenset[Partition]]) -> frozenset[Partition]:
    found = set(partitions)
    waiting = list(partitions)
    while waiting:
        for above in upstream[waiting.pop()] - found:
            found.add(above)
            waiting.append(above)
    return frozenset(found)


def output_partitions(program: Program) -> dict[str, tuple[Partition, ...]]:
    """For each query the partitions whose output it publishes; none for a query that reads sources alone."""
    found: dict[str, tuple[Partition, ...]] = {}
    for query, numbers in program.query_vertices.items():
        owners = sorted({owner for owner in map(program.owner, numbers) if owner is not None})
        groups = range(program.topology.key_groups)
        found[query] = tuple(Partition(owner, KeyGroup(group)) for owner in owners for group in groups)
    return found
