"""What a coordinator asks for. Numbered commands are carried out in their order; a `Run` waits for those before it.

Whoever carries them out answers each with one input (see `inputs`); `Emit` alone needs no answer, and `Cancel` makes that of a `Run` come sooner.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from resurge.coordinator.scheduling import Strategy
from resurge.model.names import NodeId, Partition
from resurge.model.requests import Answer
from resurge.model.work import Job
from resurge.planning.checkpoint_placement import CheckpointProblem
from resurge.planning.key_group_moves import MoveProblem
from resurge.protocols.recovery import RecoveryState
from resurge.telemetry.events import Event


@dataclass(frozen=True)
class Run:
    """Run a job; ends in `JobEnded`."""

    job: Job


@dataclass(frozen=True)
class Cancel:
    """A job is void: stop it where that is possible. Its `JobEnded` comes as for any other."""

    attempt: str


@dataclass(frozen=True)
class Poll:
    """Ask the sources for the next epoch's input, at most so many rows; ends in `InputReady`."""

    epoch: int
    row_limit: int | None
    is_drain: bool = False


@dataclass(frozen=True)
class EpochPlan:
    """What the next epoch reads; logged before it runs."""

    epoch: int
    is_drain: bool = False


@dataclass(frozen=True)
class EpochCommit:
    """An epoch's output is decided: what this attempt staged for it; these partitions were not live.

    None says that they are the same as in the record before.
    """

    epoch: int
    attempt: str
    absent: tuple[Partition, ...] | None = None


@dataclass(frozen=True)
class CatchUpCommit:
    """Partitions that were lagging have reached these epochs, and what this attempt staged before `below` is their output."""

    attempt: str
    cursors: Mapping[Partition, int]
    below: int


@dataclass(frozen=True)
class CheckpointCommit:
    """A checkpoint is complete: its manifest is written, and the output of its epoch has been published.

    It has every partition but these, which were not live.
    """

    epoch: int
    absent: tuple[Partition, ...] = ()


Record = EpochPlan | EpochCommit | CatchUpCommit | CheckpointCommit


@dataclass(frozen=True)
class Append:
    """Append a record to the journal; ends in `Appended`. A refusal ends the driver."""

    number: int
    record: Record


@dataclass(frozen=True)
class Publish:
    """Let readers see what an attempt staged for the epochs from `first` to `last`; ends in `Published`."""

    number: int
    attempt: str
    first: int
    last: int


@dataclass(frozen=True)
class WriteManifest:
    """Write the manifest of the checkpoint that an attempt took, without those that were not live; ends in `Done`."""

    number: int
    epoch: int
    attempt: str
    absent: tuple[Partition, ...] = ()


@dataclass(frozen=True)
class AddOlderStates:
    """Write the manifest of an epoch, anew if there is one, with the states that partitions have in older ones; ends in `Done`.

    They have been given up: they go on after that epoch.
    """

    number: int
    epoch: int
    states: Mapping[Partition, int]


@dataclass(frozen=True)
class Forget:
    """Remove what nobody needs once this checkpoint is logged, and tell the sources; ends in `Done`.

    Some partition still restores from epoch `first`. Buffers of epochs up to `buffers_through` are not needed either.
    """

    number: int
    checkpoint: int
    first: int
    buffers_through: int | None = None


@dataclass(frozen=True)
class Adopt:
    """The versions and buffers that an attempt wrote are the newest; ends in `Done`."""

    number: int
    attempt: str


@dataclass(frozen=True)
class Discard:
    """Nothing of an attempt is used: remove what it staged and wrote; ends in `Done`."""

    number: int
    attempt: str


@dataclass(frozen=True)
class DropBuffers:
    """Buffers that an attempt kept on a node are not needed; ends in `Done`."""

    number: int
    attempt: str
    node: NodeId


@dataclass(frozen=True)
class Plan:
    """Ask the planner which queries come back and where; ends in `Planned`. `copies` are the nodes with the newest copies."""

    number: int
    recovery: RecoveryState
    strategy: Strategy
    copies: Mapping[Partition, NodeId] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanMoves:
    """Ask the planner what should move where; ends in `MovesPlanned`."""

    number: int
    problem: MoveProblem


@dataclass(frozen=True)
class PlanCopies:
    """Ask the planner where copies should lie; ends in `CopiesPlanned`."""

    number: int
    problem: CheckpointProblem
    algorithm: str


@dataclass(frozen=True)
class ChangeRoles:
    """Copies on these nodes are the primaries from now on, and primaries on those are copies; ends in `Done`."""

    number: int
    promoted: tuple[tuple[Partition, NodeId], ...] = ()
    demoted: tuple[tuple[Partition, NodeId], ...] = ()


@dataclass(frozen=True)
class Respond:
    """Answer a user's request; ends in `Done`."""

    number: int
    request: str
    answer: Answer


@dataclass(frozen=True)
class RequestNodes:
    """Have so many nodes in all, those that drain too; ends in `Done` when they are asked for, not when they come."""

    number: int
    total: int


@dataclass(frozen=True)
class ReleaseNodes:
    """Give nodes back that have nothing to do any more; ends in `Done` when that is asked for."""

    number: int
    nodes: tuple[NodeId, ...]


@dataclass(frozen=True)
class Emit:
    """Write a telemetry event."""

    event: Event


Command = (
    Run
    | Cancel
    | Poll
    | Append
    | Publish
    | WriteManifest
    | AddOlderStates
    | Forget
    | Adopt
    | Discard
    | DropBuffers
    | Plan
    | PlanMoves
    | PlanCopies
    | ChangeRoles
    | Respond
    | RequestNodes
    | ReleaseNodes
    | Emit
)
