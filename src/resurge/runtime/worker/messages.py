"""What the driver tells a task and what the task answers."""

import msgspec

from resurge.connectors.contracts import StagedPart
from resurge.runtime.storage.runs import SavedState


class Split(msgspec.Struct, frozen=True):
    """One split of one source in one epoch, to be read by one slot."""

    source: str
    epoch: int
    index: int
    partition: bytes


class PartitionWork(msgspec.Struct, frozen=True):
    """A partition that a slot advances: where its state is now (a local segment, or a checkpoint), None being empty."""

    operator: str
    key_group: int
    segment: str | None = None
    restore: SavedState | None = None


class EpochWork(msgspec.Struct, frozen=True):
    """One epoch to run: the sources' watermarks when it begins, and when it ends if that is known already."""

    epoch: int
    watermarks_us: dict[str, int]
    closing_us: dict[str, int] | None = None
    show: bool = True


class SlotWork(msgspec.Struct, frozen=True):
    """What one slot does in all levels of one job."""

    node: str
    splits: list[Split]
    partitions: list[PartitionWork]
    expired: list[str]


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


class PartitionReport(msgspec.Struct):
    """What became of one partition."""

    operator: str
    key_group: int
    segment: str
    segments: list[str]
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    cpu_s: float = 0.0
    state_rows: int = 0
    state_bytes: int = 0
    checkpoint: SavedState | None = None


class SlotReport(msgspec.Struct):
    """What one slot did at one level."""

    slot: int
    level: int
    failure: tuple[str, str] | None = None
    partitions: list[PartitionReport] = msgspec.field(default_factory=list)
    parts: list[StagedPart] = msgspec.field(default_factory=list)
    rows_read: int = 0
    bad_rows: int = 0
    cpu_s: float = 0.0
    maxima_us: dict[int, dict[str, int]] = msgspec.field(default_factory=dict)
    seconds: dict[str, float] = msgspec.field(default_factory=dict)


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
