"""Telemetry as OpenTelemetry spans, exported by OTLP: epochs, catch-up jobs, checkpoints, recoveries and moves.

An epoch, a checkpoint, a move and a recovery are traces of their own; a recovery has its detection, plans, catch-up jobs and the outage
of every query as children. Times are those of the events, so spans are exact however late they are exported.
"""

import re
from collections.abc import Callable
from typing import Any

from resurge.errors import DashboardError
from resurge.model.names import query_of
from resurge.telemetry import events

EXTRA = "traces need the OpenTelemetry SDK; install it with: pip install 'resurge[traces]'"
NANOSECONDS = 1_000_000_000


class SpanExporter:
    """Turns events into spans; `take` is a listener of the telemetry log, `close` sends what is left."""

    def __init__(self, url: str, job: str = "resurge") -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise DashboardError(EXTRA) from None
        if not re.match(r"https?://[^/]", url):
            raise DashboardError(f"traces cannot be sent to {url!r}; expected a URL such as http://127.0.0.1:4318/v1/traces")
        self._trace = trace
        self._provider = TracerProvider(resource=Resource.create({"service.name": "resurge", "resurge.job": job}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
        self._tracer = self._provider.get_tracer("resurge")
        self._killed_s: float | None = None
        self._lost_s: float | None = None
        self._recovery: Any = None
        self._outages: dict[str, Any] = {}
        self._parts_down: dict[str, set[str]] = {}
        self._generation = 0
        self._moves: dict[str, Any] = {}
        self._names: dict[str, str] = {}

    def take(self, event: events.Event) -> None:
        """Begin or end spans."""
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def close(self) -> None:
        """End what is open, and send everything."""
        for span in (*self._outages.values(), *self._moves.values(), self._recovery):
            if span is not None:
                span.set_attribute("resurge.is_finished", False)
                span.end()
        self._outages, self._moves, self._recovery = {}, {}, None
        self._provider.shutdown()

    def _job_started(self, event: events.JobStarted) -> None:
        self._generation = event.generation

    def _epoch_finished(self, event: events.EpochFinished) -> None:
        recovery = {"resurge.epoch": event.epoch, "resurge.rows_read": event.rows_read, "resurge.state_bytes": event.state_bytes}
        epoch = self._span("epoch", event.at_s - event.took_s, recovery)
        # An epoch of the live topology is one Spark job.
        job = self._span("job", event.at_s - event.took_s, recovery | {"resurge.job_kind": "live"}, epoch)
        for level, cpu_s in event.phases_s.items():
            job.set_attribute(f"resurge.cpu_s.{level.replace(' ', '_')}", cpu_s)
        self._end(job, event.at_s)
        self._end(epoch, event.at_s)

    def _checkpoint_finished(self, event: events.CheckpointFinished) -> None:
        self._whole("checkpoint", event.at_s - event.took_s, event.at_s, {"resurge.epoch": event.epoch})

    def _catch_up_finished(self, event: events.CatchUpFinished) -> None:
        recovery = {
            "resurge.job_kind": "catch-up",
            "resurge.first_epoch": event.first,
            "resurge.last_epoch": event.last,
            "resurge.partitions": event.partitions,
            "resurge.shadows": event.shadows,
            "resurge.restore_s": event.restore_s,
        }
        self._whole("job", event.at_s - event.took_s, event.at_s, recovery, self._recovery)

    def _nodes_killed(self, event: events.NodesKilled) -> None:
        self._killed_s = event.at_s

    def _node_lost(self, event: events.NodeLost) -> None:
        if self._recovery is None and self._lost_s is None:
            self._lost_s = event.at_s
        if self._recovery is not None:
            self._recovery.add_event(
                "node lost", {"resurge.node": self._names.get(event.node, event.node)}, _nanoseconds(event.at_s)
            )

    def _node_named(self, event: events.NodeNamed) -> None:
        self._names[event.node] = event.name

    def _node_joined(self, event: events.NodeJoined) -> None:
        if self._recovery is not None:
            self._recovery.add_event(
                "node joined", {"resurge.node": self._names.get(event.node, event.node)}, _nanoseconds(event.at_s)
            )

    def _move_started(self, event: events.MoveStarted) -> None:
        recovery = {"resurge.request": event.request, "resurge.how": event.how, "resurge.partitions": len(event.partitions)}
        self._moves[event.request] = self._span("move", event.at_s, recovery)

    def _move_ended(self, event: events.MoveEnded) -> None:
        # One that began before this exporter did is known by its length.
        span = self._moves.pop(event.request, None) or self._span("move", event.at_s - event.took_s, {})
        span.set_attributes(
            {
                "resurge.request": event.request,
                "resurge.moved": event.moved,
                "resurge.pause_s": event.pause_s,
                "resurge.shipped_bytes": event.shipped_bytes,
                "resurge.failure": event.failure,
            }
        )
        self._end(span, event.at_s)

    def _recovery_planned(self, event: events.RecoveryPlanned) -> None:
        recovery = {
            "resurge.partitions": len(event.partitions),
            "resurge.queries": len({query_of(name) for name in event.queries}),
            "resurge.strategy": event.strategy,
        }
        self._whole("plan", event.at_s - event.took_s, event.at_s, recovery, self._recovery)

    def _queries_changed(self, event: events.QueriesChanged) -> None:
        if event.down:
            self._went_down(event)
        for name in event.back:
            query = query_of(name)
            parts = self._parts_down.get(query, set())
            parts.discard(name)
            if not parts and query in self._outages:
                self._end(self._outages.pop(query), event.at_s)
        if self._recovery is not None and not self._outages:
            self._end(self._recovery, event.at_s)
            self._recovery = None

    def _went_down(self, event: events.QueriesChanged) -> None:
        if self._recovery is None:
            seen_s = self._lost_s or event.at_s
            began_s = self._killed_s if self._killed_s is not None else seen_s
            self._recovery = self._span("recovery", began_s, {"resurge.epoch": event.epoch})
            self._whole("detection", began_s, seen_s, {}, self._recovery)
        self._killed_s = self._lost_s = None
        for name in event.down:
            query = query_of(name)
            self._parts_down.setdefault(query, set()).add(name)
            if query not in self._outages:
                self._outages[query] = self._span("query outage", event.at_s, {"resurge.query": query}, self._recovery)

    def _whole(self, name: str, from_s: float, to_s: float, recovery: dict[str, Any], parent: Any = None) -> None:
        self._end(self._span(name, from_s, recovery, parent), to_s)

    def _span(self, name: str, from_s: float, recovery: dict[str, Any], parent: Any = None) -> Any:
        context = self._trace.set_span_in_context(parent) if parent is not None else None
        given = recovery | {"resurge.generation": self._generation}
        return self._tracer.start_span(name, context, attributes=given, start_time=_nanoseconds(from_s))

    def _end(self, span: Any, at_s: float) -> None:
        span.end(_nanoseconds(at_s))


def _nanoseconds(moment_s: float) -> int:
    return round(moment_s * NANOSECONDS)


_HANDLERS: dict[type, Callable[[SpanExporter, Any], None]] = {
    events.JobStarted: SpanExporter._job_started,
    events.EpochFinished: SpanExporter._epoch_finished,
    events.CheckpointFinished: SpanExporter._checkpoint_finished,
    events.CatchUpFinished: SpanExporter._catch_up_finished,
    events.NodesKilled: SpanExporter._nodes_killed,
    events.NodeLost: SpanExporter._node_lost,
    events.NodeJoined: SpanExporter._node_joined,
    events.NodeNamed: SpanExporter._node_named,
    events.MoveStarted: SpanExporter._move_started,
    events.MoveEnded: SpanExporter._move_ended,
    events.RecoveryPlanned: SpanExporter._recovery_planned,
    events.QueriesChanged: SpanExporter._queries_changed,
}
