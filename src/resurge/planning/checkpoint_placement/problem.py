"""Where checkpoint copies should go, so that they help when load shifts: what is given, what is feasible."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from resurge.errors import InfeasibleError, ProblemError
from resurge.planning import problem_files
from resurge.planning.solvers.balanced_assignment import AssignmentProblem

CAPACITY_TOLERANCE = 1e-9


@dataclass(frozen=True)
class PlacementNode:
    """A node with the key groups that it runs; without a failure domain it is one by itself."""

    key_groups: Sequence[str] = ()
    domain: str | None = None


@dataclass(frozen=True)
class CheckpointProblem:
    """Nodes with their key groups, the key groups' loads over time, and what a placement must keep.

    Every key group has `copies` copies of its checkpoint, on nodes whose failure domains differ from one another and from
    that of the key group's own node. With `balance`, no node holds copies of more than `balance` times the average load.
    `current` is the placement that exists; it is changed only while it is worse than a new one by more than `threshold`.

    >>> nodes = {"n1": PlacementNode(["g1"]), "n2": PlacementNode(["g2"])}
    >>> problem = CheckpointProblem(nodes=nodes, loads={"g1": [1, 2], "g2": [2, 1]})
    >>> round(problem.score({"g1": ["n2"], "g2": ["n1"]}), 6)
    -3.0
    """

    nodes: Mapping[str, PlacementNode]
    loads: Mapping[str, Sequence[float]]
    copies: int = 1
    balance: float | None = None
    current: Mapping[str, Sequence[str]] = field(default_factory=dict)
    threshold: float = 0

    def __post_init__(self) -> None:
        nodes = _nodes(self.nodes)
        loads = _loads(self.loads)
        _refuse_groups_without_node_or_load(nodes, loads)
        problem_files.whole(self.copies, "copies", at_least=0)
        if self.balance is not None and problem_files.finite(self.balance, "balance") < 1:
            raise ProblemError(f"balance must be at least 1 (every node at the average), got {self.balance!r}")
        problem_files.finite_non_negative(self.threshold, "threshold")
        current = _current(self.current, nodes, loads)
        object.__setattr__(self, "nodes", MappingProxyType(nodes))
        object.__setattr__(self, "loads", MappingProxyType(loads))
        object.__setattr__(self, "current", MappingProxyType(current))

    @classmethod
    def from_json(cls, document: object) -> "CheckpointProblem":
        """Build the problem from a decoded problem file; refuse missing and misspelt fields."""
        fields = problem_files.as_object(document, "the problem")
        optional = ("copies", "balance", "current", "threshold")
        problem_files.require_fields(fields, required=("nodes", "loads"), optional=optional)
        nodes = problem_files.as_object(fields["nodes"], "nodes")
        for name, node in nodes.items():
            where = f"nodes[{name!r}]"
            problem_files.require_fields(problem_files.as_object(node, where), ("key_groups",), ("domain",), where)
        if "balance" in fields:
            problem_files.finite(fields["balance"], "balance")
        parsed = {str(name): value for name, value in fields.items()}
        return cls(**{**parsed, "nodes": {name: PlacementNode(**node) for name, node in nodes.items()}})

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """The nodes; a node's place here is its bin in `assignment`."""
        return tuple(self.nodes)

    @cached_property
    def group_names(self) -> tuple[str, ...]:
        """The key groups; a key group's place here is its item in `assignment`."""
        return tuple(self.loads)

    @cached_property
    def home(self) -> NDArray[np.int64]:
        """For each key group, the node that runs it."""
        home_of = {group: index for index, node in enumerate(self.nodes.values()) for group in node.key_groups}
        return np.array([home_of[group] for group in self.group_names], dtype=np.int64)

    @cached_property
    def assignment(self) -> AssignmentProblem:
        """The problem as bare items, bins and costs, for solvers that know nothing of streams."""
        domain_numbers: dict[object, int] = {}
        # A tuple cannot be the name of a domain, so a node without a domain shares its own with nobody.
        keys = [(name,) if node.domain is None else node.domain for name, node in self.nodes.items()]
        domains = np.array([domain_numbers.setdefault(key, len(domain_numbers)) for key in keys], dtype=np.int64)
        weights = self._series.mean(axis=1) if self.group_names else np.zeros(0)
        average = float(weights.sum()) * self.copies / max(len(self.nodes), 1)
        return AssignmentProblem(
            costs=self._correlations * weights[:, None],
            is_allowed=domains[self.home][:, None] != domains[None, :],
            weights=weights,
            capacity=float("inf") if self.balance is None else average * self.balance * (1 + CAPACITY_TOLERANCE),
            classes=domains,
            copies=self.copies,
        )

    def score(self, placement: Mapping[str, Sequence[str]]) -> float:
        """Sum over all copies of correlation(load of the key group, load of the node) x load; lower is better."""
        group_at = {name: index for index, name in enumerate(self.group_names)}
        node_at = {name: index for index, name in enumerate(self.node_names)}
        costs = self.assignment.costs
        return float(sum(costs[group_at[group], node_at[node]] for group, nodes in placement.items() for node in nodes))

    def require_feasible(self) -> None:
        """Refuse more copies than failure domains allow, and a balance that one key group breaks by itself."""
        assignment = self.assignment
        for item, group in enumerate(self.group_names):
            possible = len(set(assignment.classes[assignment.is_allowed[item]].tolist()))
            if possible < self.copies:
                raise InfeasibleError(
                    f"copies is {self.copies}, but key group {group!r} on node {self.node_names[self.home[item]]!r} has only "
                    f"{possible} other failure domains to put a copy in; give fewer copies or nodes in more domains"
                )
        self._refuse_key_group_above_capacity()

    def _refuse_key_group_above_capacity(self) -> None:
        assignment = self.assignment
        if not self.copies or self.balance is None or not self.group_names:
            return
        heaviest = int(np.argmax(assignment.weights))
        load, average = float(assignment.weights[heaviest]), assignment.capacity / self.balance
        if load > assignment.capacity:
            raise InfeasibleError(
                f"balance is {self.balance:g}, but key group {self.group_names[heaviest]!r} alone has load {load:g}, more than "
                f"{self.balance:g} times a node's average {average:g}; give a balance of at least {load / average:.3g}"
            )

    @cached_property
    def _series(self) -> NDArray[np.float64]:
        return np.array([list(series) for series in self.loads.values()], dtype=np.float64)

    @cached_property
    def _correlations(self) -> NDArray[np.float64]:
        """Pearson's correlation of every key group with every node's total load; 0 where either does not vary."""
        if not self.group_names:
            return np.zeros((0, len(self.nodes)))
        node_series = np.zeros((len(self.nodes), self._series.shape[1]))
        np.add.at(node_series, self.home, self._series)
        return np.asarray(np.clip(_standardised(self._series) @ _standardised(node_series).T, -1.0, 1.0))


def _standardised(series: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = series - series.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    # A constant series leaves rounding errors when centred; they must not count as variation.
    varies = lengths > 1e-9 * np.linalg.norm(series, axis=1, keepdims=True)
    return np.where(varies, centred / np.where(varies, lengths, 1.0), 0.0)


def _nodes(value: object) -> dict[str, PlacementNode]:
    nodes = {}
    runs_on: dict[str, str] = {}
    for name, node in problem_files.as_object(value, "nodes").items():
        if not isinstance(node, PlacementNode):
            raise ProblemError(f"nodes[{name!r}] must be a PlacementNode, got {problem_files.shown(node)}")
        if node.domain is not None:
            problem_files.as_name(node.domain, f"nodes[{name!r}]['domain']")
        where = f"nodes[{name!r}]['key_groups']"
        groups = tuple(problem_files.as_name(group, where) for group in problem_files.as_list(node.key_groups, where))
        for group in groups:
            if group in runs_on:
                raise ProblemError(f"{where} has {group!r}, which {runs_on[group]!r} has too; a key group runs on one node")
            runs_on[group] = name
        nodes[name] = PlacementNode(groups, node.domain)
    return nodes


def _loads(value: object) -> dict[str, tuple[float, ...]]:
    loads: dict[str, tuple[float, ...]] = {}
    expected = None
    for group, series in problem_files.as_object(value, "loads").items():
        where = f"loads[{group!r}]"
        samples = problem_files.as_list(series, where)
        for index, sample in enumerate(samples):
            # Spelling out the field for each of a million good samples would take seconds.
            if type(sample) not in (int, float) or not 0 <= sample <= problem_files.LARGEST_NUMBER:
                problem_files.finite_non_negative(sample, f"{where}[{index}]")
        if not samples:
            raise ProblemError(f"{where} is empty; give at least one sample")
        if expected is not None and len(samples) != len(loads[expected]):
            raise ProblemError(
                f"{where} has {len(samples)} samples, but loads[{expected!r}] has {len(loads[expected])}; "
                "sample all key groups at the same times"
            )
        expected = expected or group
        loads[group] = tuple(samples)
    return loads


def _refuse_groups_without_node_or_load(nodes: Mapping[str, PlacementNode], loads: Mapping[str, object]) -> None:
    runs = Counter(group for node in nodes.values() for group in node.key_groups)
    for name, node in nodes.items():
        for group in node.key_groups:
            problem_files.known_name(group, loads, f"nodes[{name!r}]['key_groups']", "key group (it has no loads)")
    for group in loads:
        if group not in runs:
            raise ProblemError(f"loads[{group!r}] is for a key group that no node runs{problem_files.nearest(group, runs)}")


def _current(value: object, nodes: Mapping[str, PlacementNode], loads: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    current = {}
    for group, places in problem_files.as_object(value, "current").items():
        problem_files.known_name(group, loads, "current", "key group")
        where = f"current[{group!r}]"
        names = [problem_files.known_name(node, nodes, where, "node") for node in problem_files.as_list(places, where)]
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise ProblemError(f"{where} has {repeated[0]!r} twice; a node holds at most one copy of a key group")
        current[group] = tuple(names)
    return current
