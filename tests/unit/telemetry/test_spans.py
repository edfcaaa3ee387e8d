"""Spans as a collector receives them: a real OTLP receiver over HTTP decodes what was exported."""

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from resurge.errors import DashboardError
from resurge.telemetry import events
from resurge.telemetry.spans import SpanExporter
from tests.support.telemetry import START_S, checkpoint, epoch, started


@contextmanager
def receiver() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """An OTLP receiver on a free port, and what it was sent."""
    received: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            content = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            received.append(ExportTraceServiceRequest.FromString(content))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", received
    finally:
        server.shutdown()
        server.server_close()


def exported(*told: events.Event):
    """The spans that a collector got after these events, and the resource's attributes."""
    with receiver() as (url, received):
        exporter = SpanExporter(url, "trending")
        for event in told:
            exporter.take(event)
        exporter.close()
    spans = [
        span
        for request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    resources = [
        attribute for request in received for resource in request.resource_spans for attribute in resource.resource.attributes
    ]
    return spans, {attribute.key: attribute.value.string_value for attribute in resources}


def seconds(span) -> tuple[float, float]:
    """From and to, since the start of the run."""
    return span.start_time_unix_nano / 1e9 - START_S, span.end_time_unix_nano / 1e9 - START_S


def named(spans, name: str):
    """The spans of a name."""
    return [span for span in spans if span.name == name]


def attributes(span) -> dict[str, object]:
    """A span's attributes as plain values."""
    return {known.key: getattr(known.value, known.value.WhichOneof("value")) for known in span.attributes}


def test_epochs_jobs_and_checkpoints_are_spans_with_exact_times():
    """Times are those of the events, however late they are exported."""
    spans, resource = exported(started(), epoch(1), epoch(2), checkpoint(2))
    assert resource["resurge.job"] == "trending"
    assert [seconds(span) for span in named(spans, "epoch")] == [pytest.approx((0.5, 1)), pytest.approx((1.5, 2))]
    assert [attributes(span)["resurge.rows_read"] for span in named(spans, "epoch")] == [100, 100]
    (saved,) = named(spans, "checkpoint")
    assert seconds(saved) == pytest.approx((2.05, 2.1))
    parents = {span.parent_span_id for span in named(spans, "job")}
    assert parents == {span.span_id for span in named(spans, "epoch")}


def test_recovery_has_its_steps_as_children():
    """Detection, plan, catch-up and every query's outage, in one trace from the kill to the last query."""
    spans, _ = exported(
        started(),
        epoch(1),
        events.NodesKilled(START_S + 2, ["n1"]),
        events.NodeLost(START_S + 2.5, "n1", 4, False),
        events.QueriesChanged(START_S + 2.5, 1, ["busy/0", "quiet/0", "busy/1"], []),
        events.RecoveryPlanned(START_S + 2.7, ["busy/0"], {"w/0": "n2"}, 0.1, "incremental"),
        events.NodeJoined(START_S + 3, "n3", 1.0),
        events.CatchUpFinished(START_S + 4, 1, 2, 1.0, 2, 0, 0, {}, 0.2),
        events.QueriesChanged(START_S + 4, 2, [], ["busy/0"]),
        events.QueriesChanged(START_S + 5, 2, [], ["busy/1"]),
        events.QueriesChanged(START_S + 6, 2, [], ["quiet/0"]),
        epoch(7),
    )
    (recovery,) = named(spans, "recovery")
    assert seconds(recovery) == pytest.approx((2, 6))
    assert [event.name for event in recovery.events] == ["node joined"]
    children = [span for span in spans if span.parent_span_id == recovery.span_id]
    assert sorted(span.name for span in children) == ["detection", "job", "plan", "query outage", "query outage"]
    assert {span.trace_id for span in children} == {recovery.trace_id}
    assert seconds(next(span for span in children if span.name == "detection")) == pytest.approx((2, 2.5))
    outages = {attributes(span)["resurge.query"]: seconds(span) for span in named(spans, "query outage")}
    assert outages == {"busy": pytest.approx((2.5, 5)), "quiet": pytest.approx((2.5, 6))}
    assert named(spans, "epoch")[-1].trace_id != recovery.trace_id


def test_recovery_that_is_not_over_when_the_driver_ends_is_exported_and_says_so():
    """What was going on when a driver stopped is what one looks for."""
    spans, _ = exported(started(), epoch(1), events.QueriesChanged(START_S + 2, 1, ["busy/0"], []))
    (recovery,) = named(spans, "recovery")
    assert attributes(recovery)["resurge.is_finished"] is False


def test_moves_are_spans_with_what_moved_and_how_long_it_paused():
    """Also one whose beginning was told before, and one that is not over when the driver ends."""
    spans, _ = exported(
        started(),
        events.MoveStarted(START_S + 1, "drain node-1", "precopy", {"w/0": ["0", "1"], "w/1": ["0", "1"]}),
        events.MoveEnded(START_S + 3, "drain node-1", 2, 2.0, 0.1, 4096),
        events.MoveEnded(START_S + 5, "", 1, 1.5, 0.2, 10, "node 3 was lost"),
        events.MoveStarted(START_S + 6, "", "precopy", {"w/0": ["1", "0"]}),
    )
    drained, balanced, open_ = named(spans, "move")
    assert seconds(drained) == pytest.approx((1, 3))
    known = attributes(drained)
    assert (known["resurge.partitions"], known["resurge.moved"], known["resurge.pause_s"]) == (2, 2, 0.1)
    assert known["resurge.how"] == "precopy"
    assert seconds(balanced) == pytest.approx((3.5, 5))
    assert attributes(balanced)["resurge.failure"] == "node 3 was lost"
    assert attributes(open_)["resurge.is_finished"] is False


def test_an_address_that_is_none_is_refused():
    """Before the job starts, instead of spans that are lost."""
    with pytest.raises(DashboardError, match=r"traces cannot be sent to '127\.0\.0\.1:4318'; expected a URL"):
        SpanExporter("127.0.0.1:4318")


def test_missing_library_is_named_with_the_extra():
    """Whoever installed without the extra is told how to get it."""
    code = "import sys; sys.modules['opentelemetry'] = None\nfrom resurge.telemetry.spans import SpanExporter\nSpanExporter('http://127.0.0.1:1')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'resurge[traces]'" in ended.stderr
