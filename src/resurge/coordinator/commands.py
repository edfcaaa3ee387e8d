"""What a coordinator asks for. Numbered commands are carried out in their order; a `Run` waits for those before it.

Whoever carries them out answers each with one input (see `inputs`); `Emit` alone needs no answer, and `Cancel` makes that of a `Run` come sooner.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from resurge.coordinator.scheduling import Strategy
from resurge.model.names import NodeId, Partition
from resurge.model.requests import Answer
from resurge.model.work import Job
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
    """Write the manifest of the states that an attempt has saved, without those that were not live; ends in `Done`."""

    number: int
    epoch: int
    attempt: str
    absent: tuple[Partition, ...] = ()


@dataclass(frozen=True)
class Forget:
    """Remove what nobody needs once this checkpoint is logged, and tell the sources; ends in `Done`.

    Some partition still restores from epoch `first`; without one that is not live, buffers are not needed either.
    """

    number: int
    checkpoint: int
    first: int
    is_whole: bool = True


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
    """Ask the planner which queries come back and where; ends in `Planned`."""

    number: int
    recovery: RecoveryState
    strategy: Strategy


@dataclass(frozen=True)
class PlanMoves:
    """Ask the planner what should move where; ends in `MovesPlanned`."""

    number: int
    problem: MoveProblem


@dataclass(frozen=True)
class Respond:
    """Answer a user's request; ends in `Done`."""

    number: int
    request: str
    answer: Answer


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
    | Forget
    | Adopt
    | Discard
    | DropBuffers
    | Plan
    | PlanMoves
    | Respond
    | Emit
)
