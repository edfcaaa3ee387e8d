"""Which tasks should keep backups, so that every task recovers within its bound: what is given, what is feasible."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from resurge.errors import InfeasibleError, ProblemError
from resurge.planning import problem_files
from resurge.planning.solvers.latency_graph import LatencyGraph, with_tolerance

UNBOUNDED = float("inf")


class BindingBound(NamedTuple):
    """The bound that a task must keep, and the field of the problem that asks for it."""

    value: float
    field: str


@dataclass(frozen=True)
class BackupProblem:
    """Tasks with their reprocessing times, the streams between them, and the recovery bounds to keep.

    `bound` holds for every task; `bounds` gives sinks their own, and a task keeps the smallest bound of the sinks
    downstream of it. `costs` is what a backup of a task costs; a task that is not named there costs 1.

    >>> problem = BackupProblem(tasks={"a": 2, "b": 1, "c": 4}, edges=[("a", "b"), ("b", "c")], bound=6)
    >>> problem.bound_of("a")
    6
    """

    tasks: Mapping[str, float]
    edges: Sequence[tuple[str, str]]
    bound: float | None = None
    bounds: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tasks = _numbers(self.tasks, "tasks")
        edges = _edges(self.edges, tasks)
        bounds = _numbers(self.bounds, "bounds")
        costs = _numbers(self.costs, "costs")
        for name in costs:
            problem_files.known_name(name, tasks, "costs", "task")
        if self.bound is not None:
            problem_files.finite_non_negative(self.bound, "bound")
        elif tasks and not bounds:
            raise ProblemError("the problem has neither 'bound' nor 'bounds'; give the recovery bound to keep")
        frozen = {"tasks": tasks, "edges": edges, "bounds": bounds, "costs": costs}
        for name, value in frozen.items():
            object.__setattr__(self, name, value)
        self._refuse_cycle()
        self._refuse_bounds_of_others_than_sinks()

    @classmethod
    def from_json(cls, document: object) -> "BackupProblem":
        """Build the problem from a decoded problem file; refuse missing and misspelt fields."""
        fields = problem_files.as_object(document, "the problem")
        problem_files.require_fields(fields, required=("tasks", "edges"), optional=("bound", "bounds", "costs"))
        if "bound" not in fields and "bounds" not in fields:
            raise ProblemError("the problem has no field 'bound'; give it, or 'bounds' for single sinks")
        if "bound" in fields:
            problem_files.finite_non_negative(fields["bound"], "bound")
        return cls(**{str(name): value for name, value in fields.items()})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The task names; a task's place here is its vertex number in `graph`."""
        return tuple(self.tasks)

    @cached_property
    def graph(self) -> LatencyGraph:
        """The problem as a bare latency graph, for solvers that know nothing of streams."""
        vertex_of = {name: vertex for vertex, name in enumerate(self.names)}
        upstream: list[list[int]] = [[] for _ in self.names]
        downstream: list[list[int]] = [[] for _ in self.names]
        for before, after in self.edges:
            upstream[vertex_of[after]].append(vertex_of[before])
            downstream[vertex_of[before]].append(vertex_of[after])
        return LatencyGraph(
            weights=tuple(float(value) for value in self.tasks.values()),
            limits=tuple(with_tolerance(float(self._binding[name].value)) for name in self.names),
            costs=tuple(float(self.cost_of(name)) for name in self.names),
            upstream=tuple(map(tuple, upstream)),
            downstream=tuple(map(tuple, downstream)),
            order=tuple(vertex_of[name] for name in self._topological_order),
        )

    def bound_of(self, task: str) -> float:
        """The bound that a task must keep: the smallest of the sinks downstream of it, infinite if none has one."""
        return self._binding[task].value

    def cost_of(self, task: str) -> float:
        """What a backup of a task costs."""
        return self.costs.get(task, 1)

    def require_feasible(self) -> None:
        """Refuse a bound that some task exceeds by itself, whatever is backed up; name the smallest feasible bound."""
        violated = [name for name in self.names if self.tasks[name] > with_tolerance(self.bound_of(name))]
        if not violated:
            return
        binding = self._binding[max(violated, key=self.tasks.__getitem__)]
        governed = [name for name in self.names if binding.field == "bound" or binding.field in self._fields_of[name]]
        slowest = max(governed, key=self.tasks.__getitem__)
        raise InfeasibleError(
            f"{binding.field} is {binding.value:g}, but task {slowest!r} needs {self.tasks[slowest]:.15g} by itself and no "
            f"backup shortens that; the smallest feasible {binding.field} is {self.tasks[slowest]:.15g}"
        )

    @cached_property
    def _rustworkx_graph(self) -> Any:
        import rustworkx

        graph = rustworkx.PyDiGraph()
        vertex_of = dict(zip(self.names, graph.add_nodes_from(self.names), strict=True))
        graph.add_edges_from_no_data([(vertex_of[before], vertex_of[after]) for before, after in self.edges])
        return graph

    @cached_property
    def _topological_order(self) -> list[str]:
        import rustworkx

        return [self.names[vertex] for vertex in rustworkx.topological_sort(self._rustworkx_graph)]

    @cached_property
    def _downstream(self) -> Mapping[str, list[str]]:
        downstream: dict[str, list[str]] = {name: [] for name in self.names}
        for before, after in self.edges:
            downstream[before].append(after)
        return downstream

    @cached_property
    def _binding(self) -> Mapping[str, BindingBound]:
        general = BindingBound(UNBOUNDED if self.bound is None else self.bound, "bound")
        binding: dict[str, BindingBound] = {}
        for name in reversed(self._topological_order):
            own = [BindingBound(self.bounds[name], f"bounds[{name!r}]")] if name in self.bounds else []
            inherited = [binding[after] for after in self._downstream[name]]
            binding[name] = min([general, *own, *inherited], key=lambda bound: bound.value)
        return binding

    @cached_property
    def _fields_of(self) -> Mapping[str, frozenset[str]]:
        """For each task, the per-sink bounds that it is under."""
        fields: dict[str, frozenset[str]] = {}
        for name in reversed(self._topological_order):
            own = frozenset([f"bounds[{name!r}]"] if name in self.bounds else [])
            fields[name] = own.union(*(fields[after] for after in self._downstream[name]))
        return fields

    def _refuse_cycle(self) -> None:
        import rustworkx

        if rustworkx.is_directed_acyclic_graph(self._rustworkx_graph):
            return
        cycle = rustworkx.digraph_find_cycle(self._rustworkx_graph)
        path = " -> ".join(self.names[vertex] for vertex in [edge[0] for edge in cycle] + [cycle[0][0]])
        raise ProblemError(f"edges form a cycle: {path}; a topology must be acyclic, remove one of these edges")

    def _refuse_bounds_of_others_than_sinks(self) -> None:
        for name in self.bounds:
            problem_files.known_name(name, self.tasks, "bounds", "task")
            if self._downstream[name]:
                raise ProblemError(
                    f"bounds[{name!r}] is for a task that feeds {self._downstream[name][0]!r}; expected a sink, "
                    "give the bound to the sinks downstream of it"
                )


def _numbers(value: object, field_name: str) -> Mapping[str, float]:
    numbers = problem_files.as_object(value, field_name)
    for name, number in numbers.items():
        problem_files.finite_non_negative(number, f"{field_name}[{name!r}]")
    return MappingProxyType(dict(numbers))


def _edges(value: object, tasks: Mapping[str, float]) -> tuple[tuple[str, str], ...]:
    seen: dict[tuple[str, str], int] = {}
    for index, edge in enumerate(problem_files.as_list(value, "edges")):
        where = f"edges[{index}]"
        ends = problem_files.as_list(edge, where)
        if len(ends) != 2:
            raise ProblemError(f"{where} must be a pair [upstream task, downstream task], got {problem_files.shown(edge)}")
        before, after = (problem_files.known_name(end, tasks, where, "task") for end in ends)
        if (before, after) in seen:
            raise ProblemError(f"{where} repeats edges[{seen[before, after]}], {before!r} -> {after!r}; give it once")
        seen[before, after] = index
    return tuple(seen)
