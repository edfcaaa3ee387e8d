"""The simulated world: nodes that fail, and what they hold. It knows the truth; the driver knows only what it is told.

Rows are not simulated, only which epochs each state has taken and where the input of each came from: from the sources' log,
from an upstream partition in the same job, from a shadow, or from a buffer. So a lost or repeated input is seen at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from resurge.errors import SimulationError
from resurge.model.names import NodeId, Partition
from resurge.model.work import Job, Pair, Role, Shipment, Task
from resurge.protocols.cuts import Cuts
from resurge.simulator.journal import Parts
from resurge.simulator.sink import Sink
from resurge.simulator.workload import Workload

Key = tuple[Partition, Role]
Place = tuple[Partition, NodeId]


@dataclass(frozen=True)
class Timing:
    """How long things take, in seconds of virtual time.

    `fixed_share` is the part of an epoch's usual work that a task does once per job, however much input the job takes;
    `changed_share` the part of a state that one epoch changes; `longest_write_s` the longest that a checkpoint is being written
    while epochs go on.
    """

    interval_s: float = 1.0
    job_overhead_s: float = 0.05
    node_overhead_s: float = 0.0
    detection_s: float = 0.3
    warm_up_s: float = 0.5
    restart_s: float = 2.0
    checkpoint_s: float = 0.05
    restore_bytes_per_s: float = 100_000_000.0
    shipped_bytes_per_s: float = 50_000_000.0
    changed_share: float = 0.02
    poll_s: float = 0.1
    headroom: float = 0.8
    rows_per_s: float = 1000.0
    max_rows_per_epoch: int | None = None
    fixed_share: float = 0.0
    longest_write_s: float = 0.0


@dataclass
class Node:
    """A machine: how much it may do, what fails with it, and from when to when it is there and can be reached.

    One that is cut off goes on working, but nobody hears of it; `slowness` is how much longer it takes than others.
    """

    name: NodeId
    capacity: float
    domain: str
    warm_at_s: float
    died_at_s: float | None = None
    cut_at_s: float | None = None
    slowness: float = 1.0

    def is_up(self) -> bool:
        """Whether it has not died."""
        return self.died_at_s is None

    @property
    def unreachable_from_s(self) -> float | None:
        """Since when nothing is heard of it, if nothing is."""
        return self.died_at_s if self.died_at_s is not None else self.cut_at_s


@dataclass
class State:
    """A version of a partition's state on a node: a checkpoint's, and the exact epochs taken since."""

    node: NodeId
    version: str
    base: int
    taken: list[int] = field(default_factory=list)

    @property
    def cursor(self) -> int:
        """The last epoch taken."""
        return self.taken[-1] if self.taken else self.base


@dataclass(frozen=True)
class Outcome:
    """What a job has written by its end: new versions, buffers, and staged output. Nothing of it counts until it is adopted."""

    states: Mapping[Key, State]
    buffers: Mapping[NodeId, Mapping[Pair, frozenset[int]]]
    parts: Parts
    copies: Mapping[Place, State] = field(default_factory=dict)
    shipped_bytes: Mapping[Partition, int] = field(default_factory=dict)


class World:
    """Nodes and what is on them; the durable checkpoint; the sinks."""

    def __init__(self, workload: Workload, timing: Timing) -> None:
        self.workload = workload
        self.timing = timing
        self.nodes: dict[NodeId, Node] = {}
        self.states: dict[Key, State] = {}
        self.copies: dict[Place, State] = {}
        self.buffers: dict[NodeId, dict[str, Mapping[Pair, frozenset[int]]]] = {}
        self.saved: dict[int, frozenset[Partition]] = {0: frozenset(workload.graph.upstream)}
        self.sink = Sink(workload.outputs)
        self._next_node = 0

    # Nodes

    def add(self, now_s: float, capacity: float, domain: str, *, is_warm: bool = False) -> NodeId:
        """A machine starts; it may be used when it is warm."""
        name = NodeId(f"n{self._next_node}")
        self._next_node += 1
        self.nodes[name] = Node(name, capacity, domain, now_s + (0.0 if is_warm else self.timing.warm_up_s))
        self.buffers[name] = {}
        return name

    def kill(self, now_s: float, nodes: Iterable[NodeId]) -> list[NodeId]:
        """Machines die, with all that is on them; those that were up until now."""
        gone = [name for name in dict.fromkeys(nodes) if self.nodes[name].is_up()]
        for name in gone:
            self.nodes[name].died_at_s = now_s
            self.buffers.pop(name)
        for key in [key for key, state in self.states.items() if state.node in gone]:
            self.states.pop(key)
        for place in [place for place in self.copies if place[1] in gone]:
            self.copies.pop(place)
        return gone

    def up(self) -> list[NodeId]:
        """Machines that have not died and can be reached."""
        return [name for name, node in self.nodes.items() if node.unreachable_from_s is None]

    def members(self, now_s: float) -> dict[NodeId, float]:
        """The nodes that seem to be there: warm, and not yet declared dead."""
        return {
            name: node.capacity
            for name, node in self.nodes.items()
            if node.warm_at_s <= now_s + 1e-9 and not self._is_noticed(node, now_s)
        }

    def _is_noticed(self, node: Node, now_s: float) -> bool:
        return node.unreachable_from_s is not None and node.unreachable_from_s + self.timing.detection_s <= now_s + 1e-9

    def unreachable(self, nodes: Iterable[NodeId]) -> list[NodeId]:
        """Those of some nodes of which nothing is heard."""
        return [node for node in nodes if self.nodes[node].unreachable_from_s is not None]

    def forget_driver(self) -> None:
        """A new driver does not know what nodes hold, so it is as good as gone."""
        self.states.clear()
        self.copies.clear()
        for held in self.buffers.values():
            held.clear()

    # Jobs

    def duration_s(self, job: Job, spans_s: Mapping[int, float]) -> tuple[float, float]:
        """How long a job takes, and how much of that is restoring: on each level the slowest node decides."""
        if job.is_shipping_only:
            return self.timing.job_overhead_s + self.shipping_s(job), 0.0
        if not job.epochs:
            return self.timing.job_overhead_s + self.timing.checkpoint_s, 0.0
        all_spans_s = sum(spans_s[epoch] for epoch in job.epochs)
        upstream = self.workload.graph.upstream
        readers = [task for task in job.tasks if not upstream[task.partition]]
        read_s = sum(spans_s[epoch] for epoch in job.epochs if any(task.takes(epoch) for task in readers))
        reading = self.workload.reading_cost * self._worked_s(read_s) / max(1, len(job.nodes))
        levels = self.workload.graph.levels
        work_s: dict[int, dict[NodeId, float]] = {-1: dict.fromkeys(job.nodes, reading)}
        restore_bytes: dict[NodeId, float] = {}
        for task in job.tasks:
            everything = task.replica.cursor < job.epochs[0] and task.until >= job.epochs[-1]
            span_s = all_spans_s if everything else sum(spans_s[epoch] for epoch in job.epochs if task.takes(epoch))
            level = work_s.setdefault(levels[task.partition], {})
            level[task.node] = level.get(task.node, 0.0) + self.workload.costs[task.partition] * self._worked_s(span_s)
            if task.replica.version is None:
                restore_bytes[task.node] = restore_bytes.get(task.node, 0.0) + self.workload.state_bytes(task.partition)
        slowest_s = sum(max(self._seconds(node, cpu_s) for node, cpu_s in level.items()) for level in work_s.values() if level)
        restore_s = max(restore_bytes.values(), default=0.0) / self.timing.restore_bytes_per_s
        saving_s = self.timing.checkpoint_s if job.is_checkpoint else 0.0
        overhead_s = self.timing.job_overhead_s + self.timing.node_overhead_s * len(job.nodes)
        return overhead_s + slowest_s + restore_s + saving_s + self.shipping_s(job), restore_s

    def shipping_s(self, job: Job) -> float:
        """How long a job ships state: each node sends one after another."""
        sent: dict[NodeId, int] = {}
        for ship in job.ships:
            sent[ship.source] = sent.get(ship.source, 0) + self._shipped_bytes(ship)
        return max(sent.values(), default=0) / self.timing.shipped_bytes_per_s

    def _shipped_bytes(self, ship: Shipment) -> int:
        copy = self.copies.get((ship.partition, ship.target)) if ship.base is not None else None
        changed = 1.0 if copy is None else min(1.0, self.timing.changed_share * (ship.cursor - copy.cursor))
        return round(self.workload.state_bytes(ship.partition) * changed)

    def _worked_s(self, span_s: float) -> float:
        """The input that a task works as long for as if each second of it cost the same."""
        fixed = self.timing.fixed_share
        return fixed * self.timing.interval_s + (1 - fixed) * span_s if span_s else 0.0

    def _seconds(self, node: NodeId, cpu_s: float) -> float:
        return cpu_s * self.timing.headroom * self.nodes[node].slowness / self.nodes[node].capacity

    def run(self, job: Job) -> Outcome:
        """What a job will have written if its nodes live: every task takes its epochs in order, each with all of its input."""
        shipped = {ship.partition: self._shipped(ship, job.attempt) for ship in job.ships}
        sizes = {ship.partition: self._shipped_bytes(ship) for ship in job.ships}
        if job.is_shipping_only:
            copies = {(partition, state.node): state for partition, state in shipped.items()}
            return Outcome({}, {}, (), copies, sizes)
        states = {
            (task.partition, task.replica.role): shipped.get(task.partition) or self._opened(task, job.attempt)
            for task in job.tasks
        }
        self._check_leaving(job, states)
        parts: list[tuple[str, int]] = []
        buffered = self._buffered(job)
        for epoch in job.epochs:
            takers = [task for task in job.tasks if task.takes(epoch)]
            providers = _providers(takers)
            for task in takers:
                self._take(task, epoch, (providers, buffered), states[task.partition, task.replica.role])
                if not task.replica.is_shadow and epoch > task.published:
                    parts += [(query, epoch) for query in self.workload.queries_shown_by.get(task.partition, ())]
        copies = {(partition, state.node): state for (partition, role), state in states.items() if role is Role.COPY}
        others = {key: state for key, state in states.items() if key[1] is not Role.COPY}
        return Outcome(others, self._kept(job), tuple(parts), copies, sizes)

    def _shipped(self, ship: Shipment, attempt: str) -> State:
        """The state that arrives on another node: what its primary has, if it is where the driver believes."""
        what, held = f"the primary of {ship.partition}", self.states.get((ship.partition, Role.PRIMARY))
        if held is None or (held.node, held.version, held.cursor) != (ship.source, ship.version, ship.cursor):
            there = f"version {held.version} of epoch {held.cursor} is on {held.node}" if held else "it is on no node"
            raise SimulationError(f"{what} was to be shipped from {ship.source} as version {ship.version}; {there}")
        copy = self.copies.get((ship.partition, ship.target))
        if ship.base is not None and (copy is None or copy.version != ship.base):
            raise SimulationError(f"{what} was shipped to {ship.target} as changes since {ship.base}, which is not there")
        return State(ship.target, attempt, held.base, list(held.taken))

    def _check_leaving(self, job: Job, states: Mapping[Key, State]) -> None:
        for task in job.tasks:
            if task.partition in job.leaves and states[task.partition, task.replica.role].cursor != task.replica.cursor:
                raise SimulationError(f"{task.partition} moves with another state than that of epoch {task.replica.cursor}")

    def _opened(self, task: Task, attempt: str) -> State:
        """The state a task begins with: the version on its node, or a checkpoint's; written as a version of its own."""
        replica = task.replica
        is_copy = replica.role is Role.COPY
        held = self.copies.get((task.partition, task.node)) if is_copy else self.states.get((task.partition, replica.role))
        what = f"the {replica.role.value} of {task.partition}"
        if replica.version is None:
            if task.partition not in self.saved.get(replica.cursor, ()):
                raise SimulationError(f"{what} was to be restored at epoch {replica.cursor}; expected a checkpoint that has it")
            state = State(task.node, attempt, replica.cursor)
        elif held is None or (held.node, held.version) != (task.node, replica.version):
            there = f"version {held.version} is on {held.node}" if held else "it is on no node"
            raise SimulationError(f"{what} was sent to {task.node} for version {replica.version}; {there}")
        else:
            state = State(task.node, attempt, held.base, list(held.taken))
        if state.cursor != replica.cursor:
            raise SimulationError(f"{what} has state of epoch {state.cursor}; the driver believes epoch {replica.cursor}")
        return state

    def _take(
        self, task: Task, epoch: int, senders: tuple[Mapping[Partition, int], Mapping[Pair, set[int]]], state: State
    ) -> None:
        """Take an epoch, if its input comes once from each partition upstream: from a task of the job, or from a buffer."""
        providers, buffered = senders
        what = f"the {task.replica.role.value} of {task.partition}"
        if epoch != state.cursor + 1:
            raise SimulationError(f"{what} took epoch {epoch} after epoch {state.cursor}; expected epoch {state.cursor + 1}")
        for above in self.workload.graph.upstream[task.partition]:
            copies = providers.get(above, 0) + (epoch in buffered.get((above, task.partition), ()))
            if copies != 1:
                raise SimulationError(f"{what} got the input of epoch {epoch} from {above} {copies} times; expected once")
        state.taken.append(epoch)

    def _buffered(self, job: Job) -> dict[Pair, set[int]]:
        """The epochs that a job replays and that buffers of its nodes have."""
        # After a roll-back a partition has produced an epoch twice; the driver sends one of them.
        found: dict[Pair, set[int]] = {}
        for node in job.nodes if job.replays else ():
            for buffers in self.buffers.get(node, {}).values():
                for pair in buffers.keys() & job.replays.keys():
                    found.setdefault(pair, set()).update(epoch for epoch in job.replays[pair] if epoch in buffers[pair])
        return found

    def _kept(self, job: Job) -> dict[NodeId, dict[Pair, frozenset[int]]]:
        """What is buffered where: the epochs that each primary takes, for those below it that are not live."""
        found: dict[NodeId, dict[Pair, frozenset[int]]] = {}
        producers = job.producers()
        for below in job.buffered_for:
            for above in self.workload.graph.upstream[below]:
                node, epochs = producers.get(above, (None, range(0)))
                if node is not None and epochs:
                    found.setdefault(node, {})[above, below] = frozenset(epochs)
        return found

    def adopt(self, attempt: str, outcome: Outcome) -> None:
        """What an attempt wrote counts from now on instead of what was before; on nodes that have died since, nothing is left."""
        for key, state in outcome.states.items():
            self.states.pop(key, None)
            if self.nodes[state.node].is_up():
                self.states[key] = state
        for place, copy in outcome.copies.items():
            if self.nodes[copy.node].is_up():
                self.copies[place] = copy
        for node, buffers in outcome.buffers.items():
            if self.nodes[node].is_up():
                self.buffers[node][attempt] = buffers

    def change_roles(self, promoted: Iterable[Place], demoted: Iterable[Place]) -> None:
        """Copies are primaries from now on, and primaries copies; a copy on a node that has died leaves no primary."""
        for place in demoted:
            held = self.states.get((place[0], Role.PRIMARY))
            if held is not None and held.node == place[1]:
                self.copies[place] = held
        for place in promoted:
            self.states.pop((place[0], Role.PRIMARY), None)
            if (copy := self.copies.pop(place, None)) is not None:
                self.states[place[0], Role.PRIMARY] = copy

    def drop_buffers(self, attempt: str, node: NodeId) -> None:
        """A node removes what an attempt kept there."""
        self.buffers.get(node, {}).pop(attempt, None)

    def write_manifest(self, epoch: int, absent: Iterable[Partition], outcome: Outcome) -> None:
        """The states of one epoch are durable once this is logged; with everyone that feeds them."""
        saved = frozenset(self.workload.graph.upstream) - frozenset(absent)
        for partition in saved:
            state = outcome.states.get((partition, Role.PRIMARY))
            if state is None or state.cursor != epoch:
                at = f"epoch {state.cursor}" if state else "no state"
                raise SimulationError(f"the checkpoint of epoch {epoch} has {partition} at {at}; expected epoch {epoch}")
            if missing := self.workload.graph.upstream[partition] - saved:
                raise SimulationError(f"the checkpoint of epoch {epoch} has {partition} without {min(missing)}, which feeds it")
        self.saved[epoch] = saved

    def add_older_states(self, epoch: int, states: Mapping[Partition, int]) -> None:
        """The checkpoint of an epoch also has older states of some partitions, once this is logged."""
        for partition, since in states.items():
            if partition not in self.saved.get(since, ()):
                raise SimulationError(
                    f"{partition} was given up with the state of epoch {since}; expected a checkpoint that has it"
                )
        self.saved[epoch] = self.saved.get(epoch, frozenset()).union(states)

    def has_manifest(self, epoch: int, absent: Iterable[Partition]) -> bool:
        """Whether the manifest of a checkpoint without some partitions is written; it may have more than is logged."""
        return self.saved.get(epoch, frozenset()) >= frozenset(self.workload.graph.upstream) - frozenset(absent)

    def forget_before(self, cuts: Cuts, buffers_through: int | None) -> None:
        """Only checkpoints in use are kept, and of what nodes hold, what came after the oldest of them."""
        kept = {cut.epoch for cut in cuts.kept}
        self.saved = {epoch: partitions for epoch, partitions in self.saved.items() if epoch in kept}
        for state in (*self.states.values(), *self.copies.values()):
            if state.base < cuts.first <= state.cursor:
                state.base, state.taken = cuts.first, [later for later in state.taken if later > cuts.first]
        if buffers_through is not None:
            for held in self.buffers.values():
                last = {attempt: max((max(epochs) for epochs in kept.values()), default=0) for attempt, kept in held.items()}
                for attempt in [attempt for attempt, epoch in last.items() if epoch <= buffers_through]:
                    del held[attempt]

    def owners(self) -> Iterator[tuple[Partition, State]]:
        """Every partition whose primary has state on a node, with it."""
        for (partition, role), state in self.states.items():
            if role is Role.PRIMARY:
                yield partition, state


def _providers(takers: Iterable[Task]) -> dict[Partition, int]:
    """How many tasks of a job make each partition's output of an epoch; a partition and its shadow must not both."""
    found: dict[Partition, int] = {}
    for task in takers:
        found[task.partition] = found.get(task.partition, 0) + 1
    return found
