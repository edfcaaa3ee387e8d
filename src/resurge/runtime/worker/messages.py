"""What the driver tells a task and what the task answers."""

import msgspec
import numpy as np

from resurge.connectors.contracts import StagedPart
from resurge.errors import JobError
from resurge.storage import paths
from resurge.storage.runs import SavedCohort

LAST_EPOCH = 2**62
SOURCES = -1
GROUPS, ROWS = "<u2", "<u4"
"""How columns of key groups and of numbers of rows are written."""


class Split(msgspec.Struct, frozen=True):
    """One split of one source in one epoch, to be read by one slot."""

    source: str
    epoch: int
    index: int
    partition: bytes


class CohortWork(msgspec.Struct, frozen=True):
    """Key groups of one operator that a slot advances together: where their state is now, None being empty.

    That is a local segment, or what a checkpoint has of them. They take only the epochs after their cursor, up to `until`;
    anything at or below the cursor is a duplicate and is dropped. Output of epochs up to `shown` was shown before. Shadows
    have a state of their own and show nothing. What each epoch after `keep_after` changes is kept beside the state, so that
    it can be shipped (`shipments`); None keeps nothing, and a later epoch lets go of the older ones. If their state `arrives`
    from another node, the segment is what this node has of it, which is at epoch `at`. A copy is only kept; what was one is verified.
    """

    operator: str
    key_groups: list[int]
    segment: str | None = None
    restore: list[SavedCohort] | None = None
    cursor: int = 0
    until: int = LAST_EPOCH
    shown: int = 0
    shadow: bool = False
    keep_after: int | None = None
    arrives: bool = False
    at: int = 0
    copy: bool = False
    was_copy: bool = False

    def takes(self, epoch: int) -> bool:
        """Whether the key groups take this epoch."""
        return self.cursor < epoch <= self.until


class EpochWork(msgspec.Struct, frozen=True):
    """One epoch to run: the sources' watermarks when it begins, and when it ends if that is known already.

    `plan` is the generation that planned it: an epoch that was not committed is planned anew by the next driver.
    """

    epoch: int
    watermarks_us: dict[str, int]
    closing_us: dict[str, int] | None = None
    show: bool = True
    plan: int = 0


class Replay(msgspec.Struct, frozen=True):
    """A buffer to be sent again: of what it has from each "exchange/source key group/epoch", only these key groups."""

    level: int
    file: str
    take: dict[str, list[int]]


class Sending(msgspec.Struct, frozen=True):
    """State of key groups that goes to another slot before any epoch is taken: the segment that describes it, at its cursor.

    The receiver that has the state of an older epoch gets what changed since.
    """

    target: int
    operator: str
    key_groups: list[int]
    segment: str
    cursor: int
    since: int | None = None


class SlotWork(msgspec.Struct, frozen=True):
    """What one slot does in all levels of one job; `cpu_share` is the part of a core that its node is allowed.

    `awaited` are the parts of the checkpoint that its node writes, by their segments, `logged` those of the newest one that counts.
    """

    node: str
    splits: list[Split]
    cohorts: list[CohortWork]
    expired: list[str]
    replays: list[Replay] = []
    cpu_share: float = 1.0
    sends: list[Sending] = []
    awaited: list[str] = []
    logged: list[str] = []


class CohortLayout(msgspec.Struct, frozen=True):
    """Key groups of one operator that a slot advances together in every usual epoch, at this level."""

    operator: str
    level: int
    key_groups: list[int]


class Layout(msgspec.Struct, frozen=True):
    """What usual epochs have in common: the cohorts of each slot, and the slot that each key group is routed to.

    It is sent once, under its name; the jobs that follow only name it.
    """

    name: str
    cohorts: list[list[CohortLayout]]
    routes: dict[str, list[int]]


class JobPlan(msgspec.Struct, frozen=True):
    """One Spark job: some epochs, in order, over some partitions; `epoch` is the one they are at afterwards.

    With a layout, slots have no cohorts of their own and there are no routes: the layout has them, and its cohorts go on from
    the versions that the attempt `before` wrote, at its epoch.
    One that `waits` ends when the checkpoint that it takes, or that is being written, is durable.
    """

    job: str
    attempt: str
    epoch: int
    epochs: list[EpochWork]
    slots: list[SlotWork]
    routes: dict[str, list[int]]
    local_root: str
    durable_url: str | None = None
    checkpoint: bool = False
    buffered: dict[int, list[int]] = {}
    local_limit_bytes: int | None = None
    layout: Layout | None = None
    before: tuple[int, str] | None = None
    waits: bool = False

    def without_layout(self) -> "JobPlan":
        """The plan as it is sent: its layout is with the slots already."""
        return msgspec.structs.replace(self, layout=None)

    def with_layout(self, layout: Layout | None) -> "JobPlan":
        """The plan as it was before it was sent."""
        return msgspec.structs.replace(self, layout=layout)

    def of_slot(self, slot: int) -> "JobPlan":
        """The plan with what one slot does, from its layout if it has one."""
        if self.before is None:
            return self
        if self.layout is None:
            raise JobError(f"job {self.attempt} goes on from {self.before[1]} without a layout; expected the one that it names")
        epoch, attempt = self.before
        cohorts = [
            CohortWork(
                cohort.operator,
                cohort.key_groups,
                paths.slot_segment(epoch, attempt, cohort.level, slot),
                cursor=epoch,
                shown=epoch,
            )
            for cohort in self.layout.cohorts[slot]
        ]
        slots = list(self.slots)
        slots[slot] = msgspec.structs.replace(slots[slot], cohorts=cohorts)
        return msgspec.structs.replace(self, slots=slots, routes=self.layout.routes)


class CohortReport(msgspec.Struct):
    """What became of some key groups of one operator.

    There are three columns: the key groups, as 16-bit numbers, each one's share of the CPU time, as 32-bit floats, and its
    rows, as 32-bit numbers.
    """

    operator: str
    groups: bytes
    shadow: bool = False
    cursor: int = 0
    shares: bytes = b""
    rows_in: bytes = b""
    state_rows: int = 0
    state_bytes: int = 0
    late_rows: int = 0
    cpu_s: float = 0.0
    copy: bool = False

    @property
    def key_groups(self) -> list[int]:
        """The key groups as numbers, for whoever looks at each."""
        return [int(group) for group in np.frombuffer(self.groups, GROUPS)]

    @property
    def size(self) -> int:
        """How many key groups there are."""
        return len(self.groups) // 2


class BufferReport(msgspec.Struct, frozen=True):
    """A buffer that was written: its file, size and level, and what it has: (exchange, source key group, epoch, key groups)."""

    node: str
    level: int
    file: str
    size_bytes: int
    tables: list[tuple[int, int, int, list[int]]]


class SlotReport(msgspec.Struct):
    """What one slot did at one level; `segment` describes the new versions, `segments` are all files that they need.

    `written` are parts of a checkpoint that are durable, by their segments.
    """

    slot: int
    level: int
    failure: tuple[str, str] | None = None
    cohorts: list[CohortReport] = msgspec.field(default_factory=list)
    segment: str = ""
    segments: list[str] = msgspec.field(default_factory=list)
    parts: list[StagedPart] = msgspec.field(default_factory=list)
    buffers: list[BufferReport] = msgspec.field(default_factory=list)
    rows_read: int = 0
    bad_rows: int = 0
    epoch_rows: dict[int, int] = msgspec.field(default_factory=dict)
    cpu_s: float = 0.0
    maxima_us: dict[int, dict[str, int]] = msgspec.field(default_factory=dict)
    began_s: float = 0.0
    ended_s: float = 0.0
    restore_s: float = 0.0
    local_bytes: int = 0
    overflow_bytes: int = 0
    shipped_bytes: dict[str, int] = msgspec.field(default_factory=dict)
    shipping_s: float = 0.0
    written: dict[str, list[SavedCohort]] = msgspec.field(default_factory=dict)

    def count_rows(self, epoch: int, good: int, bad: int) -> None:
        """Rows of an epoch that a split has, and those that could not be read."""
        self.rows_read += good
        self.bad_rows += bad
        self.epoch_rows[epoch] = self.epoch_rows.get(epoch, 0) + good

    def share_cpu(self) -> None:
        """A cohort's cost is its share of all that its task did, by the time spent in its operator."""
        measured = sum(cohort.cpu_s for cohort in self.cohorts)
        for cohort in self.cohorts:
            share = cohort.cpu_s / measured if measured > 0 else 1 / len(self.cohorts)
            cohort.cpu_s = share * self.cpu_s


class FrameEntry(msgspec.Struct, frozen=True):
    """One table in a packet: rows for some key groups, ordered by key group.

    They come from one split, which is `order`; or (SOURCES) from the key groups upstream that a column of the table names.
    """

    exchange: int
    epoch: int
    order: int
    key_groups: list[int]
    ends: list[int]
    offset: int
    length: int


class PacketHeader(msgspec.Struct, frozen=True):
    """What one task sends to one slot of the next level, before the tables' bytes."""

    slot: int
    frames: list[FrameEntry]
    maxima_us: dict[int, dict[str, int]]
    reports: list[bytes]
