"""Everything a coordinator knows, as one frozen value."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from resurge.coordinator.buffers import Buffers
from resurge.coordinator.commands import Append, Command, Emit, Record
from resurge.coordinator.copying import Copying, CopySettings
from resurge.coordinator.inputs import Failure, JobEnded, JobResult, Member
from resurge.coordinator.job_events import Emitted
from resurge.coordinator.scheduling import Strategy
from resurge.model.gaps import Gap
from resurge.model.names import NodeId, Partition
from resurge.model.work import Job, Replica
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.epoch import Pace
from resurge.protocols.recovery import Phase, RecoveryState
from resurge.protocols.step_timing import Progress, StepCost
from resurge.telemetry.events import Event, TopologyDescribed


@dataclass(frozen=True)
class ScaleBounds:
    """How few and how many nodes a job may have, and how long it must be too full or too empty before that changes.

    After a change nothing is decided for `rest_s`, and nodes that do not come are asked for again after as long.
    """

    least: int
    most: int
    full_s: float = 10.0
    empty_s: float = 60.0
    rest_s: float = 20.0


@dataclass(frozen=True)
class Settings:
    """What a user chose, and what the engine can do. Fixed for the life of a driver.

    A checkpoint is taken every `checkpoint_interval_s` or, where that is 0, every `checkpoint_interval` epochs.
    `is_concurrent` says whether several jobs can run at a time; `idle_s` is how long to wait at most before sources that had
    nothing are asked again; `saves_partially` says whether checkpoints are made while some partitions are not live, `balances` whether
    load is evened out without being asked for; `most_epochs_kept` is how many epochs of input are kept for partitions that are down,
    `gives_up` whether they skip what is more, or the driver ends;
    `scale` bounds the number of nodes, where the job chooses it; `copying` says how many copies of states are kept.
    """

    interval_s: float = 1.0
    checkpoint_interval: int = 10
    checkpoint_interval_s: float = 0.0
    max_rows_per_epoch: int | None = None
    back_pressure: bool = True
    headroom: float = 0.8
    buffer_limit_bytes: int = 256 * 1024 * 1024
    always_buffers: bool = False
    is_concurrent: bool = True
    idle_s: float = 0.1
    saves_partially: bool = False
    balances: bool = False
    most_epochs_kept: int | None = None
    gives_up: bool = False
    scale: ScaleBounds | None = None
    copying: CopySettings = field(default_factory=CopySettings)


@dataclass(frozen=True)
class Description:
    """What telemetry says of the job; `outputs` are the partitions whose output each query publishes, none for sources' own."""

    name: str
    master: str
    generation: int
    priorities: Mapping[str, int]
    key_groups: int
    outputs: Mapping[str, tuple[Partition, ...]]
    topology: TopologyDescribed | None = None
    warnings: tuple[str, ...] = ()


class Turn(Enum):
    """What the next live epoch waits for."""

    RESTING = "its time"
    DUE = "partitions that come first, or its job"
    POLLING = "its input"


class Activity(Enum):
    """What the driver is doing for the user."""

    STARTING = "restoring and catching up until something is live"
    RUNNING = "running epochs at their interval"
    STEPPING = "running one epoch"
    RECOVERING = "waiting until everything is live"
    DRAINING = "running the last epoch, which closes all windows"
    SAVING = "saving a checkpoint"
    READY = "nothing; it waits for a request"


@dataclass(frozen=True)
class Goal:
    """What the user asked for, and how far it is."""

    activity: Activity = Activity.READY
    epochs_left: int | None = None
    until_idle: bool = False
    drains: bool = False
    is_stopping: bool = False


@dataclass(frozen=True)
class Lane:
    """The live epochs: they are run one after another.

    `began_s` and `ended_s` are when the last one began and ended, `rest_s` is how long after its beginning the next is due,
    `late_s` how late it began, `before_s` how late the one before it was, `stood_back` how often recovery stood back because of
    that since partitions began to catch up, `is_looked` whether lagging partitions had their chance since. `foreground` is the job
    that everything else waits for, `awaited` are background jobs that the next live epoch waits for until a time. `considered` is
    what was known when steps were last chosen, `hurried` when it was last asked whether the next live epoch should begin early.
    """

    turn: Turn = Turn.RESTING
    began_s: float = float("-inf")
    ended_s: float = float("-inf")
    rest_s: float = 0.0
    late_s: float = 0.0
    before_s: float = 0.0
    stood_back: int = 0
    is_looked: bool = True
    foreground: str | None = None
    awaited: frozenset[str] = frozenset()
    awaited_until_s: float = 0.0
    not_before_s: float = float("-inf")
    considered: int | None = None
    hurried: int | None = None
    has_reported_waiting: bool = False


@dataclass(frozen=True)
class Rhythm:
    """What epochs and steps take, and whether steps gain on live epochs.

    `taken` is how many epochs steps have taken since the last live epoch, `attempt_s` what the last job took,
    `checkpoint_s` when the last checkpoint was taken or, where there was none, when the first epoch began.
    """

    pace: Pace = field(default_factory=Pace)
    attempt_s: float = 0.0
    cost: StepCost | None = None
    progress: Progress = field(default_factory=Progress)
    taken: int = 0
    row_limit: int | None = None
    checkpoint_s: float | None = None


@dataclass(frozen=True)
class RunningJob:
    """A job that runs: what it does for lagging partitions, and since when."""

    job: Job
    submitted_s: float
    step: CatchUp | None = None


@dataclass(frozen=True)
class Ended:
    """A background job that succeeded while a live epoch runs: it is committed after that."""

    ended: JobEnded
    at_s: float


@dataclass(frozen=True)
class Publication:
    """Output that is on its way to the readers: what telemetry says once they see it.

    `arrivals_s` are, by query, the arrival times of the epochs that it now has published in full.
    """

    result: JobResult
    took_s: float
    arrivals_s: Mapping[str, tuple[float, ...]]
    epoch: int | None = None
    arrival_s: float = 0.0
    step: CatchUp | None = None
    is_joined: bool = False
    replays: int = 0


@dataclass(frozen=True)
class Taken:
    """A checkpoint that is being written while epochs go on: of which epoch, by which job and since when it was taken.

    These partitions were not live then, and the others' states are on these nodes. It counts once it is logged.
    """

    epoch: int
    attempt: str
    since_s: float
    absent: tuple[Partition, ...] = ()
    nodes: frozenset[NodeId] = frozenset()


@dataclass(frozen=True)
class Saving:
    """A checkpoint that is on its way into the journal."""

    epoch: int
    since_s: float
    was_buffering: bool
    absent: int = 0
    kept_since: int | None = None


@dataclass(frozen=True)
class Pending:
    """The epoch that is logged and not yet committed, since when, and whether some source has more than it was allowed to give."""

    epoch: int
    arrival_s: float
    is_drain: bool = False
    since_s: float = 0.0
    is_capped: bool = False


@dataclass(frozen=True)
class Question:
    """What the planner was asked last: under which number, while it is open; and what it could not help with."""

    number: int | None = None
    asked: RecoveryState | None = None
    unanswerable: RecoveryState | None = None


@dataclass(frozen=True)
class Migration:
    """Partitions that are on their way to other nodes; one migration at a time.

    `moves` are the partitions that have not switched yet, with their targets. `question` is the planner's, while it is open.
    With `rides` their states are small enough to be shipped with the switch.
    A drain plans again until its node is empty. `shipped_bytes` is what the last shipment of each partition sent, `rounds` how
    many there were. `request` is empty for the balancer. With `makes_room`, live partitions make room for others that are down.
    Primaries keep what epochs after `kept_from` change. Partitions that move by `cpa` or `direct` pause from `paused_s` on, until they have caught up; `is_paused` while `direct` ships their states.
    """

    request: str
    how: str
    since_s: float
    moves: Mapping[Partition, NodeId] = field(default_factory=dict)
    question: int | None = None
    drains: NodeId | None = None
    makes_room: bool = False
    is_dry_run: bool = False
    is_planned: bool = False
    is_reported: bool = False
    rides: bool = False
    rounds: Mapping[Partition, int] = field(default_factory=dict)
    shipped_bytes: Mapping[Partition, int] = field(default_factory=dict)
    kept_from: int = 0
    total_bytes: int = 0
    moved: int = 0
    pause_s: float = 0.0
    paused_s: float = 0.0
    is_paused: bool = False


@dataclass(frozen=True)
class Balancing:
    """What the balancer saw: the last epoch that it looked at, for how many load was uneven, and from which on it may act again.

    `no_room` says on which nodes no room could be made, and for what.
    """

    head: int = 0
    uneven: int = 0
    not_before_epoch: int = 0
    no_room: tuple[frozenset[NodeId], frozenset[Partition]] | None = None


@dataclass(frozen=True)
class Scaling:
    """How many nodes are wanted (0 before the first look), since when the cluster is too full or too empty, and what is under way.

    `releasing` is the node that is drained to be given back. Nothing is decided before `not_before_s`; nodes were last asked for
    at `asked_s`; none is drained before `retry_s`.
    """

    wanted: int = 0
    head: int = 0
    full_since_s: float | None = None
    empty_since_s: float | None = None
    not_before_s: float = float("-inf")
    asked_s: float = float("-inf")
    retry_s: float = float("-inf")
    releasing: NodeId | None = None


@dataclass(frozen=True)
class JobState:
    """A job, as its coordinator knows it."""

    settings: Settings
    description: Description
    strategy: Strategy
    recovery: RecoveryState
    members: Mapping[NodeId, Member] = field(default_factory=dict)
    costs: Mapping[Partition, float] = field(default_factory=dict)
    reading_cost: float = 0.0
    versions: Mapping[Partition, str] = field(default_factory=dict)
    shadows: Mapping[Partition, Replica] = field(default_factory=dict)
    buffers: Buffers = field(default_factory=Buffers)
    jobs: Mapping[str, RunningJob] = field(default_factory=dict)
    ended: tuple[Ended, ...] = ()
    lane: Lane = field(default_factory=Lane)
    goal: Goal = field(default_factory=Goal)
    rhythm: Rhythm = field(default_factory=Rhythm)
    question: Question = field(default_factory=Question)
    copies: Mapping[tuple[Partition, NodeId], Replica] = field(default_factory=dict)
    copying: Copying = field(default_factory=Copying)
    migration: Migration | None = None
    draining: frozenset[NodeId] = frozenset()
    drained: frozenset[str] = frozenset()
    balancing: Balancing = field(default_factory=Balancing)
    scaling: Scaling = field(default_factory=Scaling)
    pending: Pending | None = None
    arrivals_s: Mapping[int, float] = field(default_factory=dict)
    rows_read: Mapping[int, int] = field(default_factory=dict)
    gaps: Mapping[Partition, Gap] = field(default_factory=dict)
    sources_published: int = 0
    absent: tuple[Partition, ...] | None = None
    taken: Taken | None = None
    open_commands: Mapping[int, Publication | Saving | None] = field(default_factory=dict)
    next_number: int = 1
    next_attempt: int = 1
    emitted: Emitted = field(default_factory=Emitted)
    failures: int = 0
    failure: Failure | None = None
    wake_s: float | None = None
    outbox: tuple[Command, ...] = ()

    @cached_property
    def domains(self) -> Mapping[NodeId, str]:
        """What each node fails with; where all nodes are of one failure domain, each stands for itself."""
        are_apart = len({member.domain for member in self.members.values()}) > 1
        return {node: member.domain if member.domain and are_apart else f" {node}" for node, member in self.members.items()}

    @property
    def is_catching_up(self) -> bool:
        """Whether some partition is lagging and on its way."""
        return self.recovery.has_phase(Phase.CATCHING_UP)

    @property
    def background(self) -> list[RunningJob]:
        """The jobs that run while live epochs go on, also those that have ended and wait to be committed."""
        return [running for attempt, running in self.jobs.items() if attempt != self.lane.foreground]

    @property
    def is_over(self) -> bool:
        """Whether what the user asked for is done, or never will be."""
        return self.failure is not None or (self.goal.activity is Activity.READY and not self.open_commands)

    def sending(self, *commands: Command) -> "JobState":
        """With more commands to be carried out."""
        return replace(self, outbox=(*self.outbox, *commands))

    def emitting(self, emitted: Emitted, found: list[Event]) -> "JobState":
        """With what telemetry has emitted by now."""
        return replace(self, emitted=emitted, outbox=(*self.outbox, *map(Emit, found)))

    def numbered(self, purpose: Publication | Saving | None = None) -> tuple["JobState", int]:
        """With one more command that must be answered, and its number."""
        number = self.next_number
        return replace(self, next_number=number + 1, open_commands={**self.open_commands, number: purpose}), number

    def appending(self, record: Record, purpose: Saving | None = None) -> "JobState":
        """With one more record for the journal."""
        state, number = self.numbered(purpose)
        return state.sending(Append(number, record))

    def new_attempt(self) -> tuple["JobState", str]:
        """A name that no other attempt has, of this or an earlier driver."""
        return replace(self, next_attempt=self.next_attempt + 1), f"g{self.description.generation}a{self.next_attempt}"
