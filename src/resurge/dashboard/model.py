"""A job as the dashboard knows it, folded from telemetry one event at a time. No clock, no files."""

import statistics
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from resurge.dashboard.reasons import Incident, incident
from resurge.dashboard.recoveries import Recovery
from resurge.dashboard.series import Health, Series
from resurge.model.names import query_of, query_partition
from resurge.telemetry import events
from resurge.telemetry.recovery_metrics import AVAILABLE_BELOW

USUAL_LATENCIES = 64
LATENCIES_KEPT = 600
OUTAGES_KEPT = 200
INCIDENTS_KEPT = 1000
RECOVERIES_KEPT = 20


@dataclass
class QueryState:
    """A query: its priority, what it shows, and when it did not."""

    name: str
    priority: int
    down: set[str] = field(default_factory=set)
    is_planned: bool = False
    rows: int = 0
    latencies: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=LATENCIES_KEPT))
    usual: deque[float] = field(default_factory=lambda: deque(maxlen=USUAL_LATENCIES))
    outages: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=OUTAGES_KEPT))
    down_since_s: float | None = None
    down_after: int = 0

    @property
    def latency_s(self) -> float | None:
        """The newest latency."""
        return self.latencies[-1][1] if self.latencies else None

    @property
    def usual_latency_s(self) -> float | None:
        """The median latency while nothing was wrong."""
        return statistics.median(self.usual) if self.usual else None

    @property
    def relative_latency(self) -> float | None:
        """The newest latency over the usual one."""
        usual, newest = self.usual_latency_s, self.latency_s
        return newest / usual if usual and newest is not None else None

    def status(self, key_groups: int) -> str:
        """One word: live, slow, coming back, partly down, down."""
        if not self.down:
            return "slow" if (self.relative_latency or 0) > AVAILABLE_BELOW else "live"
        if self.is_planned:
            return "coming back"
        return "down" if len(self.down) >= key_groups else "partly down"

    def health(self, key_groups: int) -> Health:
        """The status as a strip shows it."""
        if not self.down:
            return Health.SLOW if (self.relative_latency or 0) > AVAILABLE_BELOW else Health.LIVE
        return Health.DOWN if len(self.down) >= key_groups else Health.PARTLY

    def went(self, partitions: Iterable[str], at_s: float, epoch: int) -> None:
        """Query partitions stopped producing after an epoch, which may be shown a moment later."""
        if not self.down:
            self.down_since_s = at_s
        self.down_after = epoch
        self.down.update(partitions)
        self.is_planned = False

    def came(self, partitions: Iterable[str] | None, at_s: float) -> None:
        """Query partitions (or all of them) produce again."""
        was_down = bool(self.down)
        self.down = self.down - set(partitions) if partitions is not None else set()
        if was_down and not self.down:
            if self.down_since_s is not None:
                self.outages.append((self.down_since_s, at_s))
            self.down_since_s, self.is_planned = None, False


@dataclass
class NodeState:
    """A node: whether it is there, and what it holds and has to do."""

    name: str
    is_up: bool
    since_s: float
    load: events.NodeLoad | None = None
    unanswered_s: float | None = None


@dataclass
class JobState:
    """Everything that the page shows of one job; `take` folds in one more event."""

    started: events.JobStarted | None = None
    stopped: events.JobStopped | None = None
    topology: events.TopologyDescribed | None = None
    newest: events.EpochFinished | None = None
    checkpoint: events.CheckpointFinished | None = None
    local_store: events.LocalStoreMeasured | None = None
    lag: dict[str, dict[str, int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    operators: dict[str, events.OperatorLoad] = field(default_factory=dict)
    queries: dict[str, QueryState] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    incidents: deque[Incident] = field(default_factory=lambda: deque(maxlen=INCIDENTS_KEPT))
    recoveries: deque[Recovery] = field(default_factory=lambda: deque(maxlen=RECOVERIES_KEPT))
    checkpoints: deque[events.CheckpointFinished] = field(default_factory=lambda: deque(maxlen=INCIDENTS_KEPT))
    lost: list[tuple[float, str, int]] = field(default_factory=list)
    killed_s: float | None = None
    series: Series | None = None
    last_s: float = 0.0
    epoch_at_s: float = 0.0
    rows: int = 0
    rows_per_s: float | None = None
    late_rows: int = 0
    bad_rows: int = 0
    buffered_bytes: int = 0
    is_buffering: bool = False
    forgotten_incidents: int = 0
    version: int = 0

    @property
    def key_groups(self) -> int:
        """Into how many parts each query is cut."""
        return self.started.key_groups if self.started is not None else 1

    @property
    def recovery(self) -> Recovery | None:
        """The recovery under way, or the last one."""
        return self.recoveries[-1] if self.recoveries else None

    def label(self, node: str) -> str:
        """What the user calls a node; with its executor where two nodes have had the same name."""
        name = self.names.get(node, node)
        is_shared = any(other != node and self.names.get(other) == name for other in self.nodes)
        return f"{name} (executor {node})" if is_shared else name

    def called(self, node: str) -> str:
        """A node within a sentence."""
        return self.label(node) if node in self.names else f"node {node}"

    def take(self, event: events.Event) -> None:
        """Fold in one more event."""
        self.version += 1
        if self.series is None:
            self.series = Series(event.at_s)
        handler = _HANDLERS.get(type(event))
        # The incident is worded before the event changes what it refers to, such as since when a query is down.
        told = incident(len(self.incidents) + self.forgotten_incidents, event, self)
        if handler is not None:
            handler(self, event)
        if told is not None:
            self.forgotten_incidents += len(self.incidents) == self.incidents.maxlen
            self.incidents.append(told)
        self.last_s = max(self.last_s, event.at_s)
        self._mark(event)

    def _mark(self, event: events.Event) -> None:
        if self.series is None:
            return
        groups = self.key_groups
        found = self.series.at(event.at_s)
        found.live_queries = sum(not query.down for query in self.queries.values()) if self.queries else None
        found.nodes = sum(node.is_up for node in self.nodes.values())
        self.series.mark(event.at_s, ((query.name, query.health(groups)) for query in self.queries.values()))

    def _job_started(self, event: events.JobStarted) -> None:
        was_running = self.started is not None and (self.stopped is None or bool(self.stopped.reason))
        self.started, self.stopped, self.epoch_at_s = event, None, event.at_s
        self.nodes = {name: NodeState(name, True, event.at_s) for name in event.nodes}
        for name, priority in event.priorities.items():
            self.queries.setdefault(name, QueryState(name, priority)).priority = priority
        if event.resumed_epoch:
            # A driver that goes on restores everything: nothing is live until it is told to be back.
            since_s = self.last_s if was_running and self.last_s else event.at_s
            for query in self.queries.values():
                query.went(
                    (query_partition(query.name, group) for group in range(event.key_groups)), since_s, event.resumed_epoch
                )
            self._recovering(since_s, "the driver started again").restarted_s = event.at_s
            self._note_down()

    def _topology_described(self, event: events.TopologyDescribed) -> None:
        self.topology = event
        self.operators = {name: load for name, load in self.operators.items() if name in event.operators}

    def _load_measured(self, event: events.LoadMeasured) -> None:
        self.operators = event.operators
        self.buffered_bytes = event.buffered_bytes
        for name, load in event.nodes.items():
            self.nodes.setdefault(name, NodeState(name, True, event.at_s)).load = load

    def _epoch_finished(self, event: events.EpochFinished) -> None:
        self.newest = event
        if self.series is None or event.replayed:
            return
        self.rows += event.rows_read
        self.late_rows += sum(event.late_rows.values())
        self.bad_rows += event.bad_rows
        for query, rows in event.query_rows.items():
            # A log that was cut at its beginning does not tell priorities.
            self.queries.setdefault(query, QueryState(query, 1)).rows += rows
        shown = [value for query, value in event.latency_s.items() if self._shown(query, event, value)]
        self.lost, self.killed_s = [], None
        found = self.series.at(event.at_s)
        since_s = max(event.at_s - self.epoch_at_s, event.took_s) if self.epoch_at_s else event.took_s
        self.rows_per_s = event.rows_read / since_s if since_s > 0 else None
        self.epoch_at_s = event.at_s
        found.rows_per_s = self.rows_per_s
        found.epoch_s = max(found.epoch_s or 0.0, event.took_s)
        found.lag_rows, found.state_bytes = event.lag_rows, event.state_bytes
        if shown:
            found.latency_p50_s = max(found.latency_p50_s or 0.0, statistics.median(shown))
            found.latency_max_s = max(found.latency_max_s or 0.0, *shown)
        self._note_back(event.at_s)

    def _shown(self, name: str, event: events.EpochFinished, latency_s: float) -> bool:
        """A query showed an epoch in full; if it is one after it went down, all of it is live."""
        query = self.queries.get(name)
        if query is None:
            return False
        if event.epoch > query.down_after:
            query.came(None, event.at_s)
        query.latencies.append((event.at_s, latency_s))
        if self.recovery is None or self.recovery.ended_s is not None:
            query.usual.append(latency_s)
        return True

    def _catch_up_finished(self, event: events.CatchUpFinished) -> None:
        for name, shown in event.latencies_s.items():
            if name in self.queries:
                self.queries[name].latencies.extend((event.at_s, value) for value in shown)
        if self.recovery is not None and self.recovery.ended_s is None:
            self.recovery.stepped(event)

    def _checkpoint_finished(self, event: events.CheckpointFinished) -> None:
        self.checkpoint = event
        self.checkpoints.append(event)

    def _nodes_killed(self, event: events.NodesKilled) -> None:
        self.killed_s = event.at_s

    def _node_lost(self, event: events.NodeLost) -> None:
        self.nodes[event.node] = NodeState(event.node, False, event.at_s)
        lost = self.lost if self.recovery is None or self.recovery.ended_s is not None else self.recovery.lost
        lost.append((event.at_s, event.node, event.partitions))

    def _node_joined(self, event: events.NodeJoined) -> None:
        self.nodes[event.node] = NodeState(event.node, True, event.at_s, events.NodeLoad(0.0, event.capacity, {}))
        if self.recovery is not None and self.recovery.ended_s is None:
            self.recovery.joined.append((event.at_s, event.node))

    def _node_suspected(self, event: events.NodeSuspected) -> None:
        self.nodes.setdefault(event.node, NodeState(event.node, True, event.at_s)).unanswered_s = event.unanswered_s

    def _node_responded(self, event: events.NodeResponded) -> None:
        self.nodes.setdefault(event.node, NodeState(event.node, True, event.at_s)).unanswered_s = None

    def _local_store_measured(self, event: events.LocalStoreMeasured) -> None:
        self.local_store = event

    def _lag_measured(self, event: events.LagMeasured) -> None:
        self.lag = event.sources

    def _node_named(self, event: events.NodeNamed) -> None:
        self.names[event.node] = event.name

    def _recovery_planned(self, event: events.RecoveryPlanned) -> None:
        for name in {query_of(name) for name in event.queries}:
            if name in self.queries:
                self.queries[name].is_planned = True
        if self.recovery is not None and self.recovery.ended_s is None:
            self.recovery.planned(event)

    def _queries_changed(self, event: events.QueriesChanged) -> None:
        down: dict[str, list[str]] = {}
        back: dict[str, list[str]] = {}
        for names, grouped in ((event.down, down), (event.back, back)):
            for name in names:
                grouped.setdefault(query_of(name), []).append(name)
        for query, parts in down.items():
            if query in self.queries:
                self.queries[query].went(parts, event.at_s, event.epoch)
        for query, parts in back.items():
            if query in self.queries:
                self.queries[query].came(parts, event.at_s)
        if not self.queries.keys().isdisjoint(down):
            # The loss of nodes that no query needs is no recovery, so one begins with the first query that is down.
            first_s = self.lost[0][0] if self.lost else event.at_s
            recovery = self._recovering(self.killed_s or first_s, "nodes were lost" if self.lost else "queries went down")
            recovery.lost += self.lost
            recovery.killed_s = recovery.killed_s or self.killed_s
            self.lost, self.killed_s = [], None
        self._note_down()
        self._note_back(event.at_s)

    def _buffering_switched(self, event: events.BufferingSwitched) -> None:
        self.is_buffering = event.is_on

    def _job_stopped(self, event: events.JobStopped) -> None:
        self.stopped = event

    def _recovering(self, at_s: float, cause: str) -> Recovery:
        """The recovery under way; a new one if there is none."""
        if self.recovery is None or self.recovery.ended_s is not None:
            self.recoveries.append(Recovery(at_s, cause))
        return self.recoveries[-1]

    def _note_down(self) -> None:
        if self.recovery is not None and self.recovery.ended_s is None:
            self.recovery.went_down(query.name for query in self.queries.values() if query.down)

    def _note_back(self, at_s: float) -> None:
        if self.recovery is not None and self.recovery.ended_s is None:
            self.recovery.came_back((query.name for query in self.queries.values() if not query.down), at_s)


_HANDLERS: dict[type, Callable[[JobState, Any], None]] = {
    events.JobStarted: JobState._job_started,
    events.TopologyDescribed: JobState._topology_described,
    events.LoadMeasured: JobState._load_measured,
    events.EpochFinished: JobState._epoch_finished,
    events.CatchUpFinished: JobState._catch_up_finished,
    events.CheckpointFinished: JobState._checkpoint_finished,
    events.NodesKilled: JobState._nodes_killed,
    events.NodeLost: JobState._node_lost,
    events.NodeJoined: JobState._node_joined,
    events.NodeSuspected: JobState._node_suspected,
    events.NodeResponded: JobState._node_responded,
    events.LocalStoreMeasured: JobState._local_store_measured,
    events.LagMeasured: JobState._lag_measured,
    events.NodeNamed: JobState._node_named,
    events.RecoveryPlanned: JobState._recovery_planned,
    events.QueriesChanged: JobState._queries_changed,
    events.BufferingSwitched: JobState._buffering_switched,
    events.JobStopped: JobState._job_stopped,
}
