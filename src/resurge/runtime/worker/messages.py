"""What the driver tells a task and what the task answers."""

import msgspec

from resurge.connectors.contracts import StagedPart
from resurge.runtime.storage.runs import SavedState

LAST_EPOCH = 2**62


class Split(msgspec.Struct, frozen=True):
    """One split of one source in one epoch, to be read by one slot."""

    source: str
    epoch: int
    index: int
    partition: bytes


class PartitionWork(msgspec.Struct, frozen=True):
    """A partition that a slot advances: where its state is now (a local segment, or a checkpoint), None being empty.

    It takes only the epochs after its cursor, up to `until`; anything at or below its cursor is a duplicate and is dropped.
    Output of epochs up to `shown` was shown before. A shadow has a state of its own and shows nothing.
    """

    operator: str
    key_group: int
    segment: str | None = None
    restore: SavedState | None = None
    cursor: int = 0
    until: int = LAST_EPOCH
    shown: int = 0
    shadow: bool = False

    def takes(self, epoch: int) -> bool:
        """Whether the partition takes this epoch."""
        return self.cursor < epoch <= self.until

    @property
    def key(self) -> "WorkKey":
        """What tells this work from the others of its slot."""
        return self.operator, self.key_group, self.shadow


WorkKey = tuple[str, int, bool]


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
    """A buffer to be sent again: of each of its tables, named "exchange/order/epoch", only these key groups."""

    level: int
    file: str
    take: dict[str, list[int]]


class SlotWork(msgspec.Struct, frozen=True):
    """What one slot does in all levels of one job; `cpu_share` is the part of a core that its node is allowed."""

    node: str
    splits: list[Split]
    partitions: list[PartitionWork]
    expired: list[str]
    replays: list[Replay] = []
    cpu_share: float = 1.0


class JobPlan(msgspec.Struct, frozen=True):
    """One Spark job: some epochs, in order, over some partitions; `epoch` is the one they are at afterwards."""

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


class PartitionReport(msgspec.Struct):
    """What became of one partition."""

    operator: str
    key_group: int
    segment: str
    segments: list[str]
    shadow: bool = False
    cursor: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    cpu_s: float = 0.0
    state_rows: int = 0
    state_bytes: int = 0
    checkpoint: SavedState | None = None


class BufferReport(msgspec.Struct, frozen=True):
    """A buffer that was written: its file, size and level, and its tables as (exchange, order, epoch, key groups)."""

    node: str
    level: int
    file: str
    size_bytes: int
    tables: list[tuple[int, int, int, list[int]]]


class SlotReport(msgspec.Struct):
    """What one slot did at one level."""

    slot: int
    level: int
    failure: tuple[str, str] | None = None
    partitions: list[PartitionReport] = msgspec.field(default_factory=list)
    parts: list[StagedPart] = msgspec.field(default_factory=list)
    buffers: list[BufferReport] = msgspec.field(default_factory=list)
    rows_read: int = 0
    bad_rows: int = 0
    cpu_s: float = 0.0
    maxima_us: dict[int, dict[str, int]] = msgspec.field(default_factory=dict)
    began_s: float = 0.0
    ended_s: float = 0.0
    restore_s: float = 0.0
    local_bytes: int = 0
    overflow_bytes: int = 0


class FrameEntry(msgspec.Struct, frozen=True):
    """One table in a packet: rows of some key groups, ordered by key group, from one split or key group upstream."""

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
