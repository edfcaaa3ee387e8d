"""Metrics as a Prometheus server sees them: a real scrape over HTTP, read by Prometheus' own parser."""

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from resurge.errors import DashboardError
from resurge.studies.failure_cases import FailureCase
from resurge.studies.simulated_failure import simulated_study
from resurge.telemetry import events
from resurge.telemetry.prometheus import PrometheusMetrics
from tests.support.telemetry import START_S, epoch, started, steady_run

ROOT = Path(__file__).parents[3]


def scraped(*told: events.Event) -> dict[str, object]:
    """Metric families by name, after these events, over HTTP."""
    metrics = PrometheusMetrics()
    for event in told:
        metrics.take(event)
    server, port = metrics.serve(0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families, name: str, **labels: str) -> float:
    """One sample."""
    for family in families.values():
        for sample in family.samples:
            if sample.name == name and all(sample.labels.get(key) == wanted for key, wanted in labels.items()):
                return sample.value
    raise AssertionError(f"there is no sample {name} {labels}")


def test_values_are_those_of_the_events():
    """Counters add up, gauges are the newest, histograms count every epoch."""
    found = scraped(*list(steady_run(12))[:-1])
    assert value(found, "resurge_epochs_total") == 12
    assert value(found, "resurge_input_rows_total") == 1200
    assert value(found, "resurge_output_rows_total", query="busy") == 120
    assert value(found, "resurge_epoch_number") == 12
    assert value(found, "resurge_epoch_duration_seconds_count") == 12
    assert value(found, "resurge_epoch_duration_seconds_sum") == pytest.approx(6)
    assert value(found, "resurge_epoch_duration_seconds_bucket", le="0.35") == 0
    assert value(found, "resurge_epoch_duration_seconds_bucket", le="0.5") == 12
    assert value(found, "resurge_query_latency_seconds", query="quiet") == 0.6
    assert value(found, "resurge_checkpoint_epoch_number") == 10
    assert value(found, "resurge_driver_up") == 1
    assert value(found, "resurge_job_info", job="trending") == 1


def test_types_are_what_the_names_promise():
    """Counters end in _total (the parser strips it), the rest carries its unit."""
    found = scraped(*steady_run(3))
    kinds = {name: family.type for name, family in found.items() if name.startswith("resurge")}
    assert kinds["resurge_input_rows"] == "counter"
    assert kinds["resurge_state_bytes"] == "gauge"
    assert kinds["resurge_latency_seconds"] == "histogram"
    for name, kind in kinds.items():
        assert re.fullmatch(r"resurge(_[a-z]+)+", name), name
        assert found[name].documentation.endswith("."), name
        if kind == "histogram":
            assert name.endswith("_seconds"), name
        for unit in ("_ms", "_milliseconds", "_kb", "_percent"):
            assert not name.endswith(unit), name


def test_a_failure_is_seen_and_its_end_too():
    """Parts of queries, nodes and buffering, through a loss and a recovery."""
    lost = [
        started(),
        epoch(1),
        events.NodeLost(START_S + 2, "driver", 4, True),
        events.BufferingSwitched(START_S + 2, 1, True),
        events.QueriesChanged(START_S + 2, 1, ["busy/0", "busy/1"], []),
    ]
    found = scraped(*lost)
    assert value(found, "resurge_query_live_ratio", query="busy") == 0.75
    assert value(found, "resurge_queries_live") == 1
    assert value(found, "resurge_nodes") == 0
    assert value(found, "resurge_nodes_lost_total") == 1
    assert value(found, "resurge_buffering") == 1
    found = scraped(
        *lost, events.NodeJoined(START_S + 3, "n2", 1.0), events.QueriesChanged(START_S + 4, 1, [], ["busy/0", "busy/1"])
    )
    assert value(found, "resurge_query_live_ratio", query="busy") == 1
    assert value(found, "resurge_queries_live") == 2
    assert value(found, "resurge_nodes") == 1


def test_suspected_nodes_and_local_stores_are_counted():
    """A node that is lost is suspected no more, and has no store."""
    told = [
        started(),
        events.NodeSuspected(START_S, "driver", 1.5, 10.0),
        events.LocalStoreMeasured(START_S, "/dev/shm", None, {"driver": 40}, {"driver": 7}),
    ]
    found = scraped(*told)
    assert value(found, "resurge_nodes_suspected") == 1
    assert value(found, "resurge_local_store_bytes", node="driver") == 40
    assert value(found, "resurge_local_overflow_bytes", node="driver") == 7
    found = scraped(*told, events.NodeLost(START_S + 1, "driver", 2, False))
    assert value(found, "resurge_nodes_suspected") == 0
    assert found["resurge_local_store_bytes"].samples == []


def test_lost_node_leaves_no_stale_series():
    """A gauge of a node that is gone would look like a node that does nothing."""
    case = FailureCase("incremental", "incremental", 2, (5.0, 9.0))
    [(_, _, told)] = simulated_study({"strategies": [case]}, nodes=4)
    found = scraped(*told)
    lost = {event.node for event in told if isinstance(event, events.NodeLost)}
    nodes = {sample.labels["node"] for sample in found["resurge_node_partitions"].samples}
    assert lost
    assert not nodes & lost
    assert len(nodes) == 4
    assert sum(sample.value for sample in found["resurge_partitions"].samples) == 15
    assert value(found, "resurge_recovery_plans_total") > 1
    assert value(found, "resurge_catch_up_duration_seconds_count") > 0


def test_grafana_dashboard_asks_only_for_metrics_that_there_are():
    """And for nearly all that there are, so that neither is forgotten when the other changes."""
    board = json.loads((ROOT / "deploy" / "grafana" / "resurge.json").read_text())
    asked = set(re.findall(r"\bresurge_[a-z_]+", json.dumps(board)))
    case = FailureCase("incremental", "incremental", 2, (5.0, 9.0))
    [(_, _, told)] = simulated_study({"strategies": [case]}, nodes=4)
    store = events.LocalStoreMeasured(told[-1].at_s, "/dev/shm", None, {"n1": 40}, {"n1": 0})
    lag = events.LagMeasured(told[-1].at_s, {"orders": {"0": 1}})
    found = scraped(*told, store, lag, epoch(99, told[-1].at_s))
    there = {sample.name for family in found.values() for sample in family.samples} | {
        f"{name}_total" for name, family in found.items() if family.type == "counter"
    }
    assert asked - there == set()
    shown = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in asked}
    unshown = {name for name in found if name.startswith("resurge") and not name.endswith("_created")} - shown
    assert unshown <= {
        "resurge_job_info", "resurge_query_priority", "resurge_node_partitions", "resurge_buffering", "resurge_epochs", "resurge_checkpoints",
        "resurge_checkpoint_epoch_number", "resurge_driver_starts", "resurge_state_rows",
        "resurge_given_up_partitions", "resurge_skipped_epochs", "resurge_skipped_rows",
    }  # fmt: skip


def test_port_that_is_taken_is_refused():
    """One line, as every refusal."""
    server, port = PrometheusMetrics().serve(0)
    try:
        with pytest.raises(DashboardError, match="cannot serve metrics on"):
            PrometheusMetrics().serve(port)
    finally:
        server.shutdown()
        server.server_close()


def test_missing_library_is_named_with_the_extra():
    """Whoever installed without the extra is told how to get it."""
    code = "import sys; sys.modules['prometheus_client'] = None\nfrom resurge.telemetry.prometheus import PrometheusMetrics\nPrometheusMetrics()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'resurge[metrics]'" in ended.stderr


def test_nodes_have_the_users_names_as_labels():
    """Where a node has a name, its series has it; a lost node has none."""
    load = events.LoadMeasured(START_S, 1, {}, {node: events.NodeLoad(0.5, 1.0, {"count": 2}) for node in ("0", "1", "2")})
    stores = events.LocalStoreMeasured(START_S, "memory", None, {"0": 10, "1": 20}, {"0": 0, "1": 0})
    named = [events.NodeNamed(START_S, "0", "node-1"), events.NodeNamed(START_S, "1", "node-2")]
    found = scraped(started(nodes=["0", "1", "2"]), load, *named, load, stores, events.NodeLost(START_S, "1", 2, False))
    labels = {sample.labels["node"] for sample in found["resurge_node_partitions"].samples}
    assert labels == {"node-1", "2"}
    assert value(found, "resurge_local_store_bytes", node="node-1") == 10


def test_lag_has_a_series_for_every_partition():
    """As the source tells them."""
    found = scraped(started(), events.LagMeasured(START_S, {"orders": {"0": 7, "1": 0}}))
    assert value(found, "resurge_source_lag_rows", source="orders", partition="0") == 7
    assert value(found, "resurge_source_lag_rows", source="orders", partition="1") == 0


def test_moves_are_counted():
    """Partitions, and how long they paused."""
    found = scraped(started(), *(events.MoveEnded(START_S, "", moved, 1.0, 0.25) for moved in (2, 3)))
    assert value(found, "resurge_moved_partitions_total") == 5
    assert value(found, "resurge_move_pause_seconds_total") == 0.5


def test_an_epoch_that_is_shown_after_its_nodes_were_lost_brings_nobody_back():
    """It was committed before."""
    down = events.QueriesChanged(START_S + 6, 6, ["busy/0", "quiet/0"], [])
    told = [*list(steady_run(5))[:-1], down, epoch(6)]
    assert value(scraped(*told), "resurge_queries_live") == 0
    assert value(scraped(*told, epoch(7)), "resurge_queries_live") == 2
