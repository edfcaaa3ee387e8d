"""Who may watch a run from outside: a dashboard, a Prometheus server, a trace collector."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resurge.errors import DashboardError

if TYPE_CHECKING:
    from resurge.telemetry.log import TelemetryLog

RUN = "from resurge.cli.main import run; run()"
STOP_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Observers:
    """Ports and addresses; None means that nobody watches in that way."""

    dashboard_port: int | None = None
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    traces_url: str | None = None


@contextmanager
def observed(telemetry: "TelemetryLog", url: str, job: str, observers: Observers, say: Callable[[str], None]) -> Iterator[None]:
    """Let observers see the events of a log while the block runs."""
    with ExitStack() as opened:
        if observers.metrics_port is not None:
            opened.enter_context(_metrics(telemetry, observers, say))
        if observers.traces_url is not None:
            opened.enter_context(_traces(telemetry, observers.traces_url, job))
        if observers.dashboard_port is not None:
            opened.enter_context(_dashboard(telemetry, url, observers.dashboard_port, say))
        yield


@contextmanager
def _metrics(telemetry: "TelemetryLog", observers: Observers, say: Callable[[str], None]) -> Iterator[None]:
    from resurge.telemetry.prometheus import PrometheusMetrics

    assert observers.metrics_port is not None
    metrics = PrometheusMetrics()
    server, port = metrics.serve(observers.metrics_port, observers.metrics_host)
    telemetry.listeners.append(metrics.take)
    say(f"metrics: http://{observers.metrics_host}:{port}/metrics")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def _traces(telemetry: "TelemetryLog", url: str, job: str) -> Iterator[None]:
    from resurge.telemetry.spans import SpanExporter

    spans = SpanExporter(url, job)
    telemetry.listeners.append(spans.take)
    try:
        yield
    finally:
        spans.close()


@contextmanager
def _dashboard(telemetry: "TelemetryLog", url: str, port: int, say: Callable[[str], None]) -> Iterator[None]:
    """A process of its own, so that drawing never takes time from the driver; it ends when our end of its input closes."""
    if telemetry.path is None:
        raise DashboardError("there is no telemetry log for a dashboard to read; give the run a telemetry file")
    command = [sys.executable, "-c", RUN, "dashboard", url, "--port", str(port), "--log", str(telemetry.path), "--follow-input"]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert started.stdout is not None
        line = started.stdout.readline().strip()
        if not line:
            raise DashboardError(f"the dashboard did not start (exit code {started.wait()}); its message is above")
        say(line.split(" (")[0])
        yield
    finally:
        # It ends when its input is closed; one that does not is ended.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            started.communicate(timeout=STOP_TIMEOUT_S)
        started.kill()
        started.wait()
