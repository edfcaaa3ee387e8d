"""Connectors whose client library is not installed."""

import sys
from collections.abc import Callable
from importlib import import_module

import polars as pl
import pytest

from resurge import DeltaSink, IcebergSink, KafkaSink, PostgresSink, delta, delta_lookup, kafka, postgres_lookup
from resurge.errors import StorageError, TopologyError
from resurge.storage.durable import DurableStore

CONNECTORS: list[tuple[str, str, Callable[[], object]]] = [
    ("confluent_kafka", "kafka", lambda: kafka("orders", "broker:9092")),
    ("confluent_kafka", "kafka", lambda: KafkaSink("orders", "broker:9092")),
    ("psycopg", "postgres", lambda: PostgresSink("orders", "dbname=shop")),
    ("psycopg", "postgres", lambda: postgres_lookup("orders", "dbname=shop", {"id": pl.Int64})),
    ("deltalake", "delta", lambda: DeltaSink("/lake/orders")),
    ("deltalake", "delta", lambda: delta("/lake/orders", {"id": pl.Int64})),
    ("deltalake", "delta", lambda: delta_lookup("/lake/orders", {"id": pl.Int64})),
    ("pyiceberg", "iceberg", lambda: IcebergSink("shop.orders")),
]


@pytest.mark.parametrize("module, extra, use", CONNECTORS)
def test_the_line_that_uses_a_connector_names_the_extra(monkeypatch, module, extra, use):
    """Not when the job runs, and not as an ImportError."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        TopologyError, match=rf"needs the package '{module}', which is not installed: pip install 'resurge\[{extra}\]'"
    ):
        use()


def test_a_store_in_s3_names_its_extra(monkeypatch):
    """Where s3fs is not installed."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(import_module("fsspec.registry")._registry, "s3", raising=False)
    with pytest.raises(StorageError, match=r"'s3://bucket/job' is not a store .*pip install 'resurge\[s3\]'"):
        DurableStore("s3://bucket/job")
