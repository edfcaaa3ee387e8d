"""What a coordinator gets: changes of nodes and jobs, answers to its commands, and requests of the user.

Inputs are small and can be written down: they carry names and figures, never rows. Every command but `Emit` ends in exactly one.
"""

import msgspec

from resurge.model.names import NodeId
from resurge.model.requests import Ask

MISPLACED = "Misplaced"
"""A task found itself on another node than it was meant for."""
COPY_DAMAGED = "CopyDamagedError"
"""A copy that was to be used is not what was shipped."""
CPU_S = "<f4"
"""How a column of CPU seconds is written."""
ENGINE_FAILED = "EngineError"
"""The engine failed at a job though none of its nodes was lost."""


class Member(msgspec.Struct, frozen=True):
    """A node that is up and warm: how much it may do, and what fails with it."""

    capacity: float
    domain: str = ""


class NodesChanged(msgspec.Struct, frozen=True, tag=True):
    """Nodes were declared dead, and nodes became warm; a node that comes back has forgotten everything."""

    lost: list[NodeId] = []
    joined: dict[NodeId, Member] = {}


class Failure(msgspec.Struct, frozen=True):
    """Why something failed: the class of the error, and what it says."""

    kind: str
    message: str


class JobResult(msgspec.Struct, frozen=True):
    """What a job that succeeded brought: figures by operator, by query, by node and by level.

    `published_epochs` are the epochs for which output was staged, `epoch_rows` the rows that the live epoch read, `query_rows` those
    that it published, `past_rows` those of each past epoch; `cpu_s` has the CPU seconds of an operator's key groups as 32-bit floats,
    NaN where they were not measured. `shipped_bytes` is what was sent of each partition's state to another node, `shipping_s` how long
    the job's tasks took to read, receive, install and save it; `copy_bytes` is the size of each copy that was written. `durable` is
    the job that took the checkpoint which is being written, once all of it is in the durable store.
    """

    published_epochs: list[int] = []
    rows_read: int = 0
    epoch_rows: int = 0
    bad_rows: int = 0
    cpu_s: dict[str, bytes] = {}
    reading_cpu_s: float = 0.0
    restore_s: float = 0.0
    buffered_bytes: dict[NodeId, int] = {}
    query_rows: dict[str, int] = {}
    past_rows: dict[str, dict[int, int]] = {}
    late_rows: dict[str, int] = {}
    level_cpu_s: dict[str, float] = {}
    state_rows: int = 0
    state_bytes: int = 0
    lag_rows: int | None = None
    replayed_buffers: int = 0
    shipped_bytes: dict[str, int] = {}
    shipping_s: float = 0.0
    durable: str | None = None
    copy_bytes: dict[str, int] = {}


class JobEnded(msgspec.Struct, frozen=True, tag=True):
    """A job succeeded, or was void because nodes were lost, or failed; at this time, where that was before the input arrives."""

    attempt: str
    result: JobResult | None = None
    lost: list[NodeId] = []
    failure: Failure | None = None
    at_s: float | None = None


class InputReady(msgspec.Struct, frozen=True, tag=True):
    """The sources were asked: whether there is anything for the next epoch, when its rows arrived, on average,
    and whether some source has more than it was allowed to give.
    """

    epoch: int
    is_empty: bool
    arrival_s: float = 0.0
    is_capped: bool = False


class Planned(msgspec.Struct, frozen=True, tag=True):
    """The planner's answer to a numbered question: partitions with their nodes, and the queries that come back."""

    number: int
    placement: dict[str, NodeId]
    queries: list[str]
    took_s: float = 0.0


class MovesPlanned(msgspec.Struct, frozen=True, tag=True):
    """The planner's answer to a numbered question of moves: partitions with their new nodes; or why there is none.

    `shipped_bytes` is what the moves ship in all, where the sizes of states are known.
    """

    number: int
    moves: dict[str, NodeId] = {}
    refusal: str = ""
    imbalance: float = 1.0
    imbalance_before: float = 1.0
    shipped_bytes: int | None = None


class CopiesPlanned(msgspec.Struct, frozen=True, tag=True):
    """The planner's answer to a numbered question of copies: the nodes of each partition's copies; or why there are none."""

    number: int
    placement: dict[str, list[NodeId]] = {}
    refusal: str = ""


class Appended(msgspec.Struct, frozen=True, tag=True):
    """A record is in the journal."""

    number: int


class Published(msgspec.Struct, frozen=True, tag=True):
    """Readers of the sinks see the output of an attempt."""

    number: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """Any other command was carried out."""

    number: int


class CommandFailed(msgspec.Struct, frozen=True, tag=True):
    """A command could not be carried out: the driver ends."""

    number: int
    failure: Failure


class Start(msgspec.Struct, frozen=True, tag=True):
    """Restore, and catch up until something is live; then run the epoch that was logged but not committed, if there is one."""


class RunEpochs(msgspec.Struct, frozen=True, tag=True):
    """Run for a number of epochs, or until there is no input; `drain` closes all windows at the end."""

    epochs: int | None = None
    until_idle: bool = False
    drain: bool = False


class TakeEpoch(msgspec.Struct, frozen=True, tag=True):
    """Run one epoch if there is input; `drain` runs one in any case, and closes all windows with it."""

    drain: bool = False


class FinishRecovery(msgspec.Struct, frozen=True, tag=True):
    """Go on until everything is live."""


class SaveAll(msgspec.Struct, frozen=True, tag=True):
    """Checkpoint now what is live."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End after the current epoch."""


Instruction = Start | RunEpochs | TakeEpoch | FinishRecovery | SaveAll | Stop | Ask


class Requested(msgspec.Struct, frozen=True, tag=True):
    """The user asks for something."""

    asked: Instruction


class Tick(msgspec.Struct, frozen=True, tag=True):
    """Time has passed."""


Input = (
    NodesChanged
    | JobEnded
    | InputReady
    | Planned
    | MovesPlanned
    | CopiesPlanned
    | Appended
    | Published
    | Done
    | CommandFailed
    | Requested
    | Tick
)
