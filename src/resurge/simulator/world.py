"""The simulated world: nodes that fail, and what they hold. It knows the truth; the driver knows only what it is told.

Rows are not simulated, only which epochs each state has taken and where the input of each came from: from the sources' log,
from an upstream partition in the same job, from a shadow, or from a buffer. So a lost or repeated input is seen at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from resurge.errors import SimulationError
from resurge.model.names import NodeId, Partition
from resurge.simulator.workload import Workload

Pair = tuple[Partition, Partition]


@dataclass(frozen=True)
class Timing:
    """How long things take, in seconds of virtual time.

    `fixed_share` is the part of an epoch's usual work that a task does once per job, however much input the job takes.
    """

    interval_s: float = 1.0
    job_overhead_s: float = 0.05
    node_overhead_s: float = 0.0
    detection_s: float = 0.3
    warm_up_s: float = 0.5
    restart_s: float = 2.0
    checkpoint_s: float = 0.05
    restore_bytes_per_s: float = 100_000_000.0
    poll_s: float = 0.1
    headroom: float = 0.8
    rows_per_s: float = 1000.0
    max_rows_per_epoch: int | None = None
    fixed_share: float = 0.0


@dataclass
class Node:
    """A machine: how much it may do, what fails with it, and from when to when it is there."""

    name: NodeId
    capacity: float
    domain: str
    warm_at_s: float
    died_at_s: float | None = None

    def is_up(self) -> bool:
        """Whether it has not died."""
        return self.died_at_s is None


@dataclass
class State:
    """A partition's state on a node: a checkpoint's, and the exact epochs taken since."""

    node: NodeId
    base: int
    taken: list[int] = field(default_factory=list)

    @property
    def cursor(self) -> int:
        """The last epoch taken."""
        return self.taken[-1] if self.taken else self.base

    def copy(self) -> "State":
        """A version of its own, so that a void attempt changes nothing."""
        return State(self.node, self.base, list(self.taken))


@dataclass(frozen=True)
class Task:
    """What one partition (or its shadow) is to do in a job: take the epochs after a cursor, show those after another."""

    partition: Partition
    node: NodeId
    cursor: int
    until: int
    shown: int
    is_shadow: bool = False
    begins_anew: bool = False

    def takes(self, epoch: int) -> bool:
        """Whether it takes this epoch."""
        return self.cursor < epoch <= self.until


@dataclass(frozen=True)
class Job:
    """One attempt: tasks upstream first, the epochs, what buffers send again, and for which pairs output is buffered."""

    epochs: tuple[int, ...]
    tasks: tuple[Task, ...]
    nodes: frozenset[NodeId]
    replays: Mapping[Pair, range] = field(default_factory=dict)
    buffered: tuple[Pair, ...] = ()
    is_checkpoint: bool = False

    def kept(self) -> Iterator[tuple[NodeId, Pair, list[int]]]:
        """What is buffered where: the epochs that the first partition of each pair takes, unless as a shadow."""
        producers = {task.partition: task for task in self.tasks if not task.is_shadow}
        for above, below in self.buffered:
            task = producers.get(above)
            if task is not None:
                yield task.node, (above, below), [epoch for epoch in self.epochs if task.takes(epoch)]


@dataclass(frozen=True)
class Shown:
    """Output that a job staged: query partition and epoch, in order."""

    parts: tuple[tuple[str, int], ...]


class Sink:
    """What users see; each query partition must show each epoch once, in order."""

    def __init__(self, queries: Iterable[str]) -> None:
        self.shown: dict[str, list[int]] = {query: [] for query in queries}
        self._forgiven: set[tuple[str, int]] = set()
        self._newest: list[tuple[str, int, bool]] = []

    def show(self, parts: Iterable[tuple[str, int]]) -> None:
        """Show parts; what a driver that died may have shown already is shown once, as sinks promise."""
        self._newest = []
        for query, epoch in parts:
            is_repeated = (query, epoch) in self._forgiven
            self._newest.append((query, epoch, is_repeated))
            if is_repeated:
                self._forgiven.discard((query, epoch))
                continue
            self.shown[query].append(epoch)
            # Checked right here, so that the step that broke it is the one that is named.
            if epoch != len(self.shown[query]):
                raise SimulationError(
                    f"query partition {query} showed epoch {epoch} as its number {len(self.shown[query])}; "
                    f"expected epoch {len(self.shown[query])}: output was {'repeated' if epoch < len(self.shown[query]) else 'lost'}"
                )

    def driver_died(self, *, is_uncertain: bool, unshown: bool) -> None:
        """Whether the newest commit was shown is not known to the next driver: it was, or (`unshown`) it was not."""
        for query, epoch, is_repeated in reversed(self._newest if is_uncertain else []):
            if unshown and not is_repeated:
                self.shown[query].pop()
            else:
                self._forgiven.add((query, epoch))
        self._newest = []


class World:
    """Nodes and what is on them; the durable checkpoint; the sinks."""

    def __init__(self, workload: Workload, timing: Timing) -> None:
        self.workload = workload
        self.timing = timing
        self.nodes: dict[NodeId, Node] = {}
        self.states: dict[Partition, State] = {}
        self.shadows: dict[Partition, State] = {}
        self.buffers: dict[NodeId, dict[Pair, set[int]]] = {}
        self.checkpoint = 0
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

    def kill(self, now_s: float, nodes: Iterable[NodeId]) -> None:
        """Machines die, with all that is on them."""
        gone = {name for name in nodes if self.nodes[name].is_up()}
        for name in gone:
            self.nodes[name].died_at_s = now_s
            self.buffers.pop(name)
        for held in (self.states, self.shadows):
            for partition in [partition for partition, state in held.items() if state.node in gone]:
                held.pop(partition)

    def up(self) -> list[NodeId]:
        """Machines that have not died."""
        return [name for name, node in self.nodes.items() if node.is_up()]

    def members(self, now_s: float) -> dict[NodeId, float]:
        """The nodes that seem to be there: warm, and not yet noticed to be dead."""
        return {
            name: node.capacity
            for name, node in self.nodes.items()
            if node.warm_at_s <= now_s and not self._is_noticed(node, now_s)
        }

    def _is_noticed(self, node: Node, now_s: float) -> bool:
        return node.died_at_s is not None and node.died_at_s + self.timing.detection_s <= now_s + 1e-9

    def first_loss_noticed_s(self, nodes: Iterable[NodeId]) -> float | None:
        """When the death of one of these nodes is noticed, if one is dead."""
        died = [node.died_at_s for node in map(self.nodes.__getitem__, nodes) if node.died_at_s is not None]
        return min(died) + self.timing.detection_s if died else None

    def forget_driver(self) -> None:
        """A new driver does not know what nodes hold, so it is as good as gone."""
        self.states.clear()
        self.shadows.clear()
        for held in self.buffers.values():
            held.clear()

    # Jobs

    def duration_s(self, job: Job, spans_s: Mapping[int, float]) -> tuple[float, float]:
        """How long a job takes, and how much of that is restoring: on each level the slowest node decides."""
        all_spans_s = sum(spans_s[epoch] for epoch in job.epochs)
        upstream = self.workload.graph.upstream
        readers = [task for task in job.tasks if not upstream[task.partition]]
        read_s = sum(spans_s[epoch] for epoch in job.epochs if any(task.takes(epoch) for task in readers))
        reading = self.workload.reading_cost * self._worked_s(read_s) / max(1, len(job.nodes))
        levels = self.workload.graph.levels
        work_s: dict[int, dict[NodeId, float]] = {-1: dict.fromkeys(job.nodes, reading)}
        restore_bytes: dict[NodeId, float] = {}
        for task in job.tasks:
            everything = task.cursor < job.epochs[0] and task.until >= job.epochs[-1]
            span_s = all_spans_s if everything else sum(spans_s[epoch] for epoch in job.epochs if task.takes(epoch))
            level = work_s.setdefault(levels[task.partition], {})
            level[task.node] = level.get(task.node, 0.0) + self.workload.costs[task.partition] * self._worked_s(span_s)
            if task.begins_anew:
                restore_bytes[task.node] = restore_bytes.get(task.node, 0.0) + self.workload.state_bytes(task.partition)
        slowest_s = sum(max(self._seconds(node, cpu_s) for node, cpu_s in level.items()) for level in work_s.values() if level)
        restore_s = max(restore_bytes.values(), default=0.0) / self.timing.restore_bytes_per_s
        saving_s = self.timing.checkpoint_s if job.is_checkpoint else 0.0
        overhead_s = self.timing.job_overhead_s + self.timing.node_overhead_s * len(job.nodes)
        return overhead_s + slowest_s + restore_s + saving_s, restore_s

    def _worked_s(self, span_s: float) -> float:
        """The input that a task works as long for as if each second of it cost the same."""
        fixed = self.timing.fixed_share
        return fixed * self.timing.interval_s + (1 - fixed) * span_s if span_s else 0.0

    def _seconds(self, node: NodeId, cpu_s: float) -> float:
        return cpu_s * self.timing.headroom / self.nodes[node].capacity

    def run(self, job: Job) -> Shown:
        """Carry out a job whose nodes all lived: every task takes its epochs in order, each with all of its input."""
        states = {(task.partition, task.is_shadow): self._opened(task) for task in job.tasks}
        shown: list[tuple[str, int]] = []
        for epoch in job.epochs:
            takers = [task for task in job.tasks if task.takes(epoch)]
            providers = _providers(takers, epoch)
            for task in takers:
                self._take(task, epoch, providers, job, states[task.partition, task.is_shadow])
                if not task.is_shadow and epoch > task.shown:
                    shown += [(query, epoch) for query in self.workload.queries_shown_by.get(task.partition, ())]
        for (partition, is_shadow), state in states.items():
            (self.shadows if is_shadow else self.states)[partition] = state
        self._keep_buffers(job)
        return Shown(tuple(shown))

    def _opened(self, task: Task) -> State:
        """The state a task begins with: the version on its node, or the checkpoint's."""
        held = (self.shadows if task.is_shadow else self.states).get(task.partition)
        state = State(task.node, self.checkpoint) if task.begins_anew else held.copy() if held else None
        what = f"{'the shadow of ' if task.is_shadow else ''}partition {task.partition}"
        if state is None or state.node != task.node:
            raise SimulationError(
                f"{what} was sent to {task.node}, where it has no state; it is on {held.node if held else 'no node'}"
            )
        if state.cursor != task.cursor:
            raise SimulationError(f"{what} has state of epoch {state.cursor}; the driver believes epoch {task.cursor}")
        return state

    def _take(self, task: Task, epoch: int, providers: Mapping[Partition, int], job: Job, state: State) -> None:
        what = f"{'the shadow of ' if task.is_shadow else ''}partition {task.partition}"
        if epoch != state.cursor + 1:
            raise SimulationError(f"{what} took epoch {epoch} after epoch {state.cursor}; expected epoch {state.cursor + 1}")
        for above in self.workload.graph.upstream[task.partition]:
            copies = providers.get(above, 0)
            if epoch in job.replays.get((above, task.partition), ()):
                copies += self._buffered(above, task.partition, epoch)
            if copies != 1:
                raise SimulationError(f"{what} got the input of epoch {epoch} from {above} {copies} times; expected once")
        state.taken.append(epoch)

    def _buffered(self, above: Partition, below: Partition, epoch: int) -> int:
        # After a roll-back a partition has produced an epoch twice; the driver sends one of them.
        return int(any(epoch in held.get((above, below), ()) for held in self.buffers.values()))

    def _keep_buffers(self, job: Job) -> None:
        for node, pair, epochs in job.kept():
            self.buffers[node].setdefault(pair, set()).update(epochs)

    def save_checkpoint(self, epoch: int) -> None:
        """All states of one epoch are durable; what came before is never asked for again."""
        for partition in self.workload.graph.upstream:
            state = self.states.get(partition)
            if state is None or state.cursor != epoch:
                raise SimulationError(
                    f"the checkpoint of epoch {epoch} has {partition} at {state.cursor if state else 'no state'}"
                )
            state.base, state.taken = epoch, []
        self.checkpoint = epoch
        for held in self.buffers.values():
            held.clear()

    def owners(self) -> Iterator[tuple[Partition, State]]:
        """Every partition that has state on a node, with it."""
        yield from self.states.items()


def _providers(takers: Iterable[Task], epoch: int) -> dict[Partition, int]:
    """How many tasks of a job make each partition's output of an epoch; a partition and its shadow must not both."""
    found: dict[Partition, int] = {}
    for task in takers:
        found[task.partition] = found.get(task.partition, 0) + 1
    return found
