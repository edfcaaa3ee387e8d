"""Telemetry as Prometheus metrics: an endpoint that a Prometheus server scrapes. Names follow Prometheus' conventions."""

import contextlib
from collections.abc import Callable
from typing import Any

from resurge.errors import DashboardError
from resurge.model.names import query_of, query_partition
from resurge.telemetry import events

EXTRA = "metrics need prometheus-client; install it with: pip install 'resurge[metrics]'"
DURATION_BUCKETS_S = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)


class PrometheusMetrics:
    """Metrics in a registry of their own; `take` is a listener of the telemetry log."""

    def __init__(self) -> None:
        try:
            import prometheus_client as client
        except ImportError:
            raise DashboardError(EXTRA) from None
        self.client = client
        self.registry = client.CollectorRegistry()
        self._key_groups = 1
        self._down: dict[str, set[str]] = {}
        self._down_after = 0
        self._nodes: set[str] = set()
        self._suspected: set[str] = set()
        self._names: dict[str, str] = {}
        self._counters()
        self._gauges()
        self._histograms()

    def _counters(self) -> None:
        self.driver_starts = self._counter("resurge_driver_starts", "Drivers that began to run the job.")
        self.epochs = self._counter("resurge_epochs", "Epochs committed.")
        self.input_rows = self._counter("resurge_input_rows", "Rows read from sources.")
        self.output_rows = self._counter("resurge_output_rows", "Rows published.", "query")
        self.late_rows = self._counter("resurge_late_rows", "Rows that came too late.", "operator")
        self.malformed_rows = self._counter("resurge_malformed_rows", "Input rows that could not be read.")
        self.checkpoints = self._counter("resurge_checkpoints", "Global checkpoints published.")
        self.nodes_lost = self._counter("resurge_nodes_lost", "Nodes that were lost.")
        self.nodes_joined = self._counter("resurge_nodes_joined", "Nodes that joined.")
        self.recovery_plans = self._counter("resurge_recovery_plans", "Recovery plans that let something come back.")
        self.restore_seconds = self._counter("resurge_restore_seconds", "Time spent reading state back from checkpoints.")
        self.moved_partitions = self._counter("resurge_moved_partitions", "Partitions that moved to another node.")
        self.move_pause_seconds = self._counter("resurge_move_pause_seconds", "Time that partitions paused while they moved.")
        self.given_up_partitions = self._counter("resurge_given_up_partitions", "Partitions that skipped epochs.")
        self.skipped_epochs = self._counter("resurge_skipped_epochs", "Epochs that partitions skipped, summed over them.")
        self.skipped_rows = self._counter("resurge_skipped_rows", "Input rows of epochs that some partition skipped.")
        self.warnings = self._counter("resurge_warnings", "Problems that were dealt with.")

    def _gauges(self) -> None:
        self.job_info = self.client.Info("resurge_job", "The job.", registry=self.registry)
        self.driver_up = self._gauge("resurge_driver_up", "1 while the driver runs the job.")
        self.generation = self._gauge("resurge_driver_generation", "Generation of the driver.")
        self.epoch = self._gauge("resurge_epoch_number", "Last committed epoch.")
        self.lag_rows = self._gauge("resurge_lag_rows", "Input rows that wait, where sources can tell.")
        self.source_lag = self._gauge("resurge_source_lag_rows", "Rows that wait in a source's partition.", "source", "partition")
        self.state_rows = self._gauge("resurge_state_rows", "Rows of state.")
        self.state_bytes = self._gauge("resurge_state_bytes", "Size of state.")
        self.query_latency = self._gauge("resurge_query_latency_seconds", "Newest latency of a query.", "query")
        self.query_live = self._gauge("resurge_query_live_ratio", "Part of a query that produces output, 0 to 1.", "query")
        self.query_priority = self._gauge("resurge_query_priority", "Priority of a query.", "query")
        self.queries = self._gauge("resurge_queries", "Queries of the job.")
        self.queries_live = self._gauge("resurge_queries_live", "Queries of which every part produces output.")
        self.nodes = self._gauge("resurge_nodes", "Nodes that are up.")
        self.node_utilisation = self._gauge("resurge_node_utilisation_ratio", "Load of a node over its capacity.", "node")
        self.node_partitions = self._gauge("resurge_node_partitions", "Partitions on a node.", "node")
        self.nodes_suspected = self._gauge("resurge_nodes_suspected", "Nodes that do not answer and are not lost yet.")
        self.local_store = self._gauge("resurge_local_store_bytes", "Size of a node's local store.", "node")
        self.local_overflow = self._gauge("resurge_local_overflow_bytes", "Local state on disk beyond the store's limit.", "node")
        self.operator_cpu = self._gauge("resurge_operator_cpu_ratio", "CPU seconds per second of an operator.", "operator")
        self.operator_behind = self._gauge("resurge_operator_epochs_behind", "Epochs that an operator is behind.", "operator")
        self.partitions = self._gauge("resurge_partitions", "Partitions by phase.", "phase")
        self.buffering = self._gauge("resurge_buffering", "1 while output is buffered for partitions that are not live.")
        self.buffered_bytes = self._gauge("resurge_buffered_bytes", "Size of buffered output.")
        self.checkpoint_epoch = self._gauge("resurge_checkpoint_epoch_number", "Epoch of the last global checkpoint.")
        self.checkpoint_time = self._gauge("resurge_checkpoint_timestamp_seconds", "When the last checkpoint was published.")

    def _histograms(self) -> None:
        self.epoch_duration = self._histogram("resurge_epoch_duration_seconds", "Time from an epoch's start to its commit.")
        self.latency = self._histogram("resurge_latency_seconds", "Time from arrival to publication, of all queries.")
        self.checkpoint_duration = self._histogram("resurge_checkpoint_duration_seconds", "Time to publish a checkpoint.")
        self.catch_up_duration = self._histogram("resurge_catch_up_duration_seconds", "Time of one catch-up job.")

    def serve(self, port: int, host: str = "127.0.0.1") -> tuple[Any, int]:
        """Answer scrapes on a port (0 takes a free one) until the server is shut down; the server and its port."""
        try:
            server, _ = self.client.start_http_server(port, addr=host, registry=self.registry)
        except OSError as error:
            raise DashboardError(
                f"cannot serve metrics on {host}, port {port}: {error.strerror}; expected a free port: choose another with --metrics"
            ) from None
        return server, server.server_address[1]

    def take(self, event: events.Event) -> None:
        """Count one event."""
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def _job_started(self, event: events.JobStarted) -> None:
        self.driver_starts.inc()
        self.driver_up.set(1)
        self.generation.set(event.generation)
        self.job_info.info({"job": event.job, "master": event.master})
        self._key_groups = event.key_groups
        self._nodes = set(event.nodes)
        self.nodes.set(len(self._nodes))
        everything = set(range(event.key_groups)) if event.resumed_epoch else set()
        self._down = {query: {query_partition(query, group) for group in everything} for query in event.priorities}
        for query, priority in event.priorities.items():
            self.query_priority.labels(query).set(priority)
            self.output_rows.labels(query)
        self._tell_queries()

    def _job_stopped(self, event: events.JobStopped) -> None:
        self.driver_up.set(0)

    def _epoch_finished(self, event: events.EpochFinished) -> None:
        if event.replayed:
            return
        self.epochs.inc()
        self.epoch.set(event.epoch)
        self.epoch_duration.observe(event.took_s)
        self.input_rows.inc(event.rows_read)
        self.malformed_rows.inc(event.bad_rows)
        self.state_rows.set(event.state_rows)
        self.state_bytes.set(event.state_bytes)
        if event.lag_rows is not None:
            self.lag_rows.set(event.lag_rows)
        for operator, rows in event.late_rows.items():
            self.late_rows.labels(operator).inc(rows)
        for query, rows in event.query_rows.items():
            self.output_rows.labels(query).inc(rows)
        for query, seconds in event.latency_s.items():
            self._shown(query, seconds)
            if event.epoch > self._down_after:
                self._down[query] = set()
        self._tell_queries()

    def _catch_up_finished(self, event: events.CatchUpFinished) -> None:
        self.catch_up_duration.observe(event.took_s)
        self.restore_seconds.inc(event.restore_s)
        for query, values in event.latencies_s.items():
            for seconds in values:
                self._shown(query, seconds)

    def _shown(self, query: str, seconds: float) -> None:
        self.query_latency.labels(query).set(seconds)
        self.latency.observe(seconds)

    def _checkpoint_finished(self, event: events.CheckpointFinished) -> None:
        self.checkpoints.inc()
        self.checkpoint_epoch.set(event.epoch)
        self.checkpoint_time.set(event.at_s)
        self.checkpoint_duration.observe(event.took_s)

    def _node_lost(self, event: events.NodeLost) -> None:
        self.nodes_lost.inc()
        self._nodes.discard(event.node)
        self.nodes.set(len(self._nodes))
        self._suspected.discard(event.node)
        self.nodes_suspected.set(len(self._suspected))
        self._forget_node(event.node)

    def _node_joined(self, event: events.NodeJoined) -> None:
        self.nodes_joined.inc()
        self._nodes.add(event.node)
        self.nodes.set(len(self._nodes))

    def _node_suspected(self, event: events.NodeSuspected) -> None:
        self._suspected.add(event.node)
        self.nodes_suspected.set(len(self._suspected))

    def _node_responded(self, event: events.NodeResponded) -> None:
        self._suspected.discard(event.node)
        self.nodes_suspected.set(len(self._suspected))

    def _local_store_measured(self, event: events.LocalStoreMeasured) -> None:
        for node, size_bytes in event.used_bytes.items():
            self.local_store.labels(self._name(node)).set(size_bytes)
        for node, size_bytes in event.overflow_bytes.items():
            self.local_overflow.labels(self._name(node)).set(size_bytes)

    def _lag_measured(self, event: events.LagMeasured) -> None:
        for source, partitions in event.sources.items():
            for partition, rows in partitions.items():
                self.source_lag.labels(source, partition).set(rows)

    def _node_named(self, event: events.NodeNamed) -> None:
        self._forget_node(event.node)
        self._names[event.node] = event.name

    def _name(self, node: str) -> str:
        """What the user calls a node."""
        return self._names.get(node, node)

    def _move_ended(self, event: events.MoveEnded) -> None:
        self.moved_partitions.inc(event.moved)
        self.move_pause_seconds.inc(event.pause_s)

    def _recovery_planned(self, event: events.RecoveryPlanned) -> None:
        self.recovery_plans.inc()

    def _queries_changed(self, event: events.QueriesChanged) -> None:
        if event.down:
            # What was committed before is shown a moment later, and says nothing of who is live.
            self._down_after = event.epoch
        for name in event.down:
            self._down.get(query_of(name), set()).add(name)
        for name in event.back:
            self._down.get(query_of(name), set()).discard(name)
        self._tell_queries()

    def _buffering_switched(self, event: events.BufferingSwitched) -> None:
        self.buffering.set(int(event.is_on))

    def _load_measured(self, event: events.LoadMeasured) -> None:
        phases: dict[str, int] = {}
        for name, load in event.operators.items():
            self.operator_cpu.labels(name).set(load.cpu_s_per_s)
            self.operator_behind.labels(name).set(load.epochs_behind)
            for phase, count in load.phases.items():
                phases[phase] = phases.get(phase, 0) + count
        self.partitions.clear()
        for phase, count in phases.items():
            self.partitions.labels(phase).set(count)
        for name, node in event.nodes.items():
            self.node_partitions.labels(self._name(name)).set(sum(node.partitions.values()))
            self.node_utilisation.labels(self._name(name)).set(node.cpu_s_per_s / node.capacity if node.capacity else 0.0)
        self.buffered_bytes.set(event.buffered_bytes)

    def _given_up(self, event: events.PartitionsGivenUp) -> None:
        self.given_up_partitions.inc(len(event.partitions))
        self.skipped_epochs.inc(len(event.partitions) * (event.last - event.first + 1))
        self.skipped_rows.inc(event.rows)

    def _warned(self, event: events.Warned) -> None:
        self.warnings.inc()

    def _forget_node(self, node: str) -> None:
        for gauge in (self.node_utilisation, self.node_partitions, self.local_store, self.local_overflow):
            with contextlib.suppress(KeyError):
                gauge.remove(self._name(node))

    def _tell_queries(self) -> None:
        self.queries.set(len(self._down))
        self.queries_live.set(sum(not down for down in self._down.values()))
        for query, down in self._down.items():
            self.query_live.labels(query).set(1 - len(down) / self._key_groups)

    def _counter(self, name: str, text: str, *labels: str) -> Any:
        return self.client.Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Any:
        return self.client.Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Any:
        return self.client.Histogram(name, text, buckets=DURATION_BUCKETS_S, registry=self.registry)


_HANDLERS: dict[type, Callable[[PrometheusMetrics, Any], None]] = {
    events.JobStarted: PrometheusMetrics._job_started,
    events.JobStopped: PrometheusMetrics._job_stopped,
    events.EpochFinished: PrometheusMetrics._epoch_finished,
    events.CatchUpFinished: PrometheusMetrics._catch_up_finished,
    events.CheckpointFinished: PrometheusMetrics._checkpoint_finished,
    events.NodeLost: PrometheusMetrics._node_lost,
    events.NodeJoined: PrometheusMetrics._node_joined,
    events.NodeSuspected: PrometheusMetrics._node_suspected,
    events.NodeResponded: PrometheusMetrics._node_responded,
    events.LocalStoreMeasured: PrometheusMetrics._local_store_measured,
    events.LagMeasured: PrometheusMetrics._lag_measured,
    events.NodeNamed: PrometheusMetrics._node_named,
    events.MoveEnded: PrometheusMetrics._move_ended,
    events.RecoveryPlanned: PrometheusMetrics._recovery_planned,
    events.QueriesChanged: PrometheusMetrics._queries_changed,
    events.BufferingSwitched: PrometheusMetrics._buffering_switched,
    events.LoadMeasured: PrometheusMetrics._load_measured,
    events.PartitionsGivenUp: PrometheusMetrics._given_up,
    events.Warned: PrometheusMetrics._warned,
}
