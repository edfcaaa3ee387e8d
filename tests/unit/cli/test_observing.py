"""Who may watch a run: a scrape, a page and a collector, all from one real run of the engine."""

import json
import time
import urllib.request

import pytest

from resurge.cli.live_view import PlainView
from resurge.cli.observing import Observers, observed
from resurge.cli.run import Limits, drive
from resurge.errors import DashboardError
from resurge.telemetry.log import TelemetryLog
from tests.unit.cli.test_run import console, engine
from tests.unit.telemetry.test_spans import receiver

DEADLINE_S = 60


def fetched(address: str) -> str:
    """The answer of a server."""
    with urllib.request.urlopen(address) as answer:
        return answer.read().decode()


def test_one_run_is_seen_by_everybody(tmp_path):
    """Metrics count its epochs, the page shows its last epoch, the collector has a span for each; then all are gone."""
    said: list[str] = []
    job = engine(tmp_path)
    with receiver() as (url, received):
        observers = Observers(dashboard_port=0, metrics_port=0, traces_url=url)
        with observed(job.telemetry, str(tmp_path / "job"), "letters", observers, said.append):
            drive(job, Limits(until_idle=True), PlainView(console()))
            metrics = next(line.split(": ", 1)[1] for line in said if line.startswith("metrics: "))
            page = next(line.rsplit(" ", 1)[1] for line in said if line.startswith("dashboard of "))
            assert "resurge_epochs_total 6.0" in fetched(metrics)
            deadline = time.monotonic() + DEADLINE_S
            while json.loads(fetched(f"{page}api/now"))["driver"]["status"] != "stopped":
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert json.loads(fetched(f"{page}api/now"))["figures"]["epoch"] == 6
        spans = [
            span
            for request in received
            for found in request.resource_spans
            for scope in found.scope_spans
            for span in scope.spans
        ]
    assert sum(span.name == "epoch" for span in spans) == 6
    for address in (metrics, page):
        with pytest.raises(OSError):
            fetched(address)


def test_dashboard_that_does_not_start_ends_the_run_before_spark(tmp_path):
    """A port that is taken is not found out hours later."""
    from resurge.dashboard.serving import listen

    log = TelemetryLog(tmp_path / "telemetry.jsonl")
    with listen("127.0.0.1", 0) as taken:
        observers = Observers(dashboard_port=taken.getsockname()[1])
        with (
            pytest.raises(DashboardError, match="the dashboard did not start"),
            observed(log, str(tmp_path), "job", observers, print),
        ):
            pass
