"""Everything worth knowing about a run, as typed events. Metrics, reports and views are computed from these alone."""

import msgspec


class JobStarted(msgspec.Struct, frozen=True, tag=True):
    """A driver began to run a job."""

    at_s: float
    job: str
    generation: int
    master: str
    nodes: list[str]
    priorities: dict[str, int]
    key_groups: int
    resumed_epoch: int = 0
    checkpoint_epoch: int = 0


class EpochFinished(msgspec.Struct, frozen=True, tag=True):
    """An epoch was committed: what it took in, what each query showed, and how long after arrival."""

    at_s: float
    epoch: int
    rows_read: int
    took_s: float
    arrival_s: float
    query_rows: dict[str, int]
    latency_s: dict[str, float]
    state_rows: int
    state_bytes: int
    late_rows: dict[str, int]
    bad_rows: int
    lag_rows: int | None
    row_limit: int | None
    phases_s: dict[str, float]
    replayed: bool = False


class CheckpointFinished(msgspec.Struct, frozen=True, tag=True):
    """A global checkpoint was published."""

    at_s: float
    epoch: int
    took_s: float


class Warned(msgspec.Struct, frozen=True, tag=True):
    """Something went wrong and was dealt with."""

    at_s: float
    message: str


class JobStopped(msgspec.Struct, frozen=True, tag=True):
    """The driver ended; `reason` is empty for an orderly stop."""

    at_s: float
    epoch: int
    reason: str


Event = JobStarted | EpochFinished | CheckpointFinished | Warned | JobStopped
