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


class OperatorDescription(msgspec.Struct, frozen=True):
    """An operator of the topology: its kind, the operators that it reads, and whether it has partitions with state."""

    kind: str
    inputs: list[str]
    is_stateful: bool


class TopologyDescribed(msgspec.Struct, frozen=True, tag=True):
    """What the job runs: operators by name, upstream first; and the operator that each query reads."""

    at_s: float
    operators: dict[str, OperatorDescription]
    outputs: dict[str, str]


class OperatorLoad(msgspec.Struct, frozen=True):
    """What an operator's partitions cost, how many epochs the last of them is behind, and how many are in each phase."""

    cpu_s_per_s: float
    epochs_behind: int
    phases: dict[str, int]


class NodeLoad(msgspec.Struct, frozen=True):
    """What the partitions on a node cost, what the node may spend, and how many partitions of each operator it holds."""

    cpu_s_per_s: float
    capacity: float
    partitions: dict[str, int]


class LoadMeasured(msgspec.Struct, frozen=True, tag=True):
    """The load of operators and nodes; told when placement changes, and every few seconds."""

    at_s: float
    epoch: int
    operators: dict[str, OperatorLoad]
    nodes: dict[str, NodeLoad]
    buffered_bytes: int = 0


class LocalStoreMeasured(msgspec.Struct, frozen=True, tag=True):
    """The local stores of the nodes, every few seconds: their place and limit, bytes there, and bytes on disk beyond it."""

    at_s: float
    place: str
    limit_bytes: int | None
    used_bytes: dict[str, int]
    overflow_bytes: dict[str, int]


class LagMeasured(msgspec.Struct, frozen=True, tag=True):
    """Rows that wait in every partition of the sources that know their partitions, such as Kafka's; every few seconds."""

    at_s: float
    sources: dict[str, dict[str, int]]


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
    """A checkpoint was published: it has all partitions but the absent ones, for which the input since an older epoch is kept."""

    at_s: float
    epoch: int
    took_s: float
    absent: int = 0
    kept_since: int | None = None


class PartitionsGivenUp(msgspec.Struct, frozen=True, tag=True):
    """Too much input was kept for partitions that are down: they skip these epochs, in which the sources had so many rows."""

    at_s: float
    first: int
    last: int
    partitions: list[str]
    rows: int


class CatchUpFinished(msgspec.Struct, frozen=True, tag=True):
    """Partitions that were behind took a step: these epochs; the latencies of the epochs that each query now showed.

    `restore_s` is the time that the slowest node read checkpoints. A step that is joined was one job with the next epoch.
    `published` has the rows that each query published of each past epoch.
    """

    at_s: float
    first: int
    last: int
    took_s: float
    partitions: int
    shadows: int
    replayed_buffers: int
    latencies_s: dict[str, list[float]]
    restore_s: float = 0.0
    is_joined: bool = False
    published: dict[str, dict[int, int]] = {}


class NodesKilled(msgspec.Struct, frozen=True, tag=True):
    """An experiment killed nodes; what follows shows when that was seen."""

    at_s: float
    nodes: list[str]


class NodeNamed(msgspec.Struct, frozen=True, tag=True):
    """What the user calls a node, where that is not the number of its executor."""

    at_s: float
    node: str
    name: str


class NodeLost(msgspec.Struct, frozen=True, tag=True):
    """A node died, and this was seen."""

    at_s: float
    node: str
    partitions: int
    is_correlated: bool


class NodeSuspected(msgspec.Struct, frozen=True, tag=True):
    """A node has not answered for longer than usual: jobs that use it wait for it. It is declared dead after `timeout_s`."""

    at_s: float
    node: str
    unanswered_s: float
    timeout_s: float


class NodeResponded(msgspec.Struct, frozen=True, tag=True):
    """A suspected node has answered; jobs do not wait for it any more."""

    at_s: float
    node: str
    unanswered_s: float


class NodeJoined(msgspec.Struct, frozen=True, tag=True):
    """A node is warm and may take partitions."""

    at_s: float
    node: str
    capacity: float


class QueryNeed(msgspec.Struct, frozen=True):
    """What a failed query needs to come back: how many partitions are not up, and what they cost."""

    partitions: int
    cpu_s_per_s: float


class RecoveryPlanned(msgspec.Struct, frozen=True, tag=True):
    """The planner let these query partitions come back, with these partitions restored.

    Why: the strategy, what each node had free, and what each failed query needed, also those that were left out.
    """

    at_s: float
    queries: list[str]
    partitions: dict[str, str]
    took_s: float
    strategy: str = ""
    free: dict[str, float] = {}
    needs: dict[str, QueryNeed] = {}


class QueriesChanged(msgspec.Struct, frozen=True, tag=True):
    """Query partitions stopped or resumed producing output."""

    at_s: float
    epoch: int
    down: list[str]
    back: list[str]


class BufferingSwitched(msgspec.Struct, frozen=True, tag=True):
    """Adaptive buffering was switched on or off."""

    at_s: float
    epoch: int
    is_on: bool


class MoveStarted(msgspec.Struct, frozen=True, tag=True):
    """Partitions begin to move: from which node to which; `request` is who asked, empty for the balancer."""

    at_s: float
    request: str
    how: str
    partitions: dict[str, list[str]]


class MoveEnded(msgspec.Struct, frozen=True, tag=True):
    """A move is over: how many partitions moved, how long it took, how long they paused; `failure` says why some did not move."""

    at_s: float
    request: str
    moved: int
    took_s: float
    pause_s: float
    shipped_bytes: int = 0
    failure: str = ""


class ClusterScaled(msgspec.Struct, frozen=True, tag=True):
    """Another number of nodes is wanted from now on, and why."""

    at_s: float
    nodes: int
    wanted: int
    why: str


class CopiesPlaced(msgspec.Struct, frozen=True, tag=True):
    """Where copies of states are to lie: how many on each node, how many are wanted, and how many get a place that they had not."""

    at_s: float
    algorithm: str
    nodes: dict[str, int]
    wanted: int
    moved: int


class CopiesRefreshed(msgspec.Struct, frozen=True, tag=True):
    """Copies of states were shipped: so many, as of this epoch or a little before."""

    at_s: float
    epoch: int
    copies: int
    shipped_bytes: int


class CopiesUsed(msgspec.Struct, frozen=True, tag=True):
    """Partitions go on from copies on these nodes, others from checkpoints; what the copies saved, over all partitions:
    epochs that are not taken again, and bytes that are not read from the durable store.
    """

    at_s: float
    partitions: dict[str, str]
    from_checkpoints: int
    epochs_saved: int
    bytes_saved: int


class WaitingForNodes(msgspec.Struct, frozen=True, tag=True):
    """There is no node left; the driver waits."""

    at_s: float
    epoch: int


class Warned(msgspec.Struct, frozen=True, tag=True):
    """Something went wrong and was dealt with."""

    at_s: float
    message: str


class JobStopped(msgspec.Struct, frozen=True, tag=True):
    """The driver ended; `reason` is empty for an orderly stop."""

    at_s: float
    epoch: int
    reason: str


Event = (
    JobStarted
    | TopologyDescribed
    | LoadMeasured
    | LocalStoreMeasured
    | LagMeasured
    | EpochFinished
    | CheckpointFinished
    | PartitionsGivenUp
    | CatchUpFinished
    | NodesKilled
    | NodeNamed
    | NodeLost
    | NodeSuspected
    | NodeResponded
    | NodeJoined
    | RecoveryPlanned
    | QueriesChanged
    | BufferingSwitched
    | MoveStarted
    | MoveEnded
    | ClusterScaled
    | CopiesPlaced
    | CopiesRefreshed
    | CopiesUsed
    | WaitingForNodes
    | Warned
    | JobStopped
)
