"""Resurge: many continuous queries on one Spark cluster, exactly once, and back one by one after a failure.

Names are loaded when they are first used: describing a topology needs no Spark, planning not even Polars.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resurge import errors as errors
    from resurge.api.builder import TopologyBuilder as TopologyBuilder
    from resurge.api.handle import JobStatus as JobStatus
    from resurge.api.handle import RunningJob as RunningJob
    from resurge.api.running import run as run
    from resurge.api.running import start as start
    from resurge.connectors.callback_sink import CommittedPart as CommittedPart
    from resurge.connectors.dataframes import dataframe as dataframe
    from resurge.connectors.delta.sink import DeltaSink as DeltaSink
    from resurge.connectors.delta.source import delta as delta
    from resurge.connectors.files import files as files
    from resurge.connectors.iceberg.sink import IcebergSink as IcebergSink
    from resurge.connectors.kafka.sink import KafkaSink as KafkaSink
    from resurge.connectors.kafka.source import kafka as kafka
    from resurge.connectors.lookup_tables import delta_lookup as delta_lookup
    from resurge.connectors.lookup_tables import parquet_lookup as parquet_lookup
    from resurge.connectors.lookup_tables import postgres_lookup as postgres_lookup
    from resurge.connectors.postgres.sink import PostgresSink as PostgresSink
    from resurge.connectors.posts import posts as posts
    from resurge.connectors.python_source import PythonSource as PythonSource
    from resurge.connectors.rate import rate as rate
    from resurge.connectors.sinks import CallbackSink as CallbackSink
    from resurge.connectors.sinks import MemorySink as MemorySink
    from resurge.connectors.sinks import ParquetSink as ParquetSink
    from resurge.model.operator import Determinism as Determinism
    from resurge.model.topology import Topology as Topology
    from resurge.operators.aggregates import count as count
    from resurge.operators.aggregates import max_ as max_
    from resurge.operators.aggregates import mean as mean
    from resurge.operators.aggregates import min_ as min_
    from resurge.operators.aggregates import sum_ as sum_
    from resurge.operators.keyed_state import list_of as list_of
    from resurge.operators.keyed_state import map_of as map_of
    from resurge.operators.keyed_state import value_of as value_of

_HOMES = {
    "CallbackSink": "resurge.connectors.sinks",
    "CommittedPart": "resurge.connectors.callback_sink",
    "DeltaSink": "resurge.connectors.delta.sink",
    "Determinism": "resurge.model.operator",
    "IcebergSink": "resurge.connectors.iceberg.sink",
    "KafkaSink": "resurge.connectors.kafka.sink",
    "JobStatus": "resurge.api.handle",
    "MemorySink": "resurge.connectors.sinks",
    "ParquetSink": "resurge.connectors.sinks",
    "PostgresSink": "resurge.connectors.postgres.sink",
    "PythonSource": "resurge.connectors.python_source",
    "RunningJob": "resurge.api.handle",
    "Topology": "resurge.model.topology",
    "TopologyBuilder": "resurge.api.builder",
    "count": "resurge.operators.aggregates",
    "dataframe": "resurge.connectors.dataframes",
    "delta": "resurge.connectors.delta.source",
    "delta_lookup": "resurge.connectors.lookup_tables",
    "files": "resurge.connectors.files",
    "kafka": "resurge.connectors.kafka.source",
    "list_of": "resurge.operators.keyed_state",
    "map_of": "resurge.operators.keyed_state",
    "max_": "resurge.operators.aggregates",
    "mean": "resurge.operators.aggregates",
    "min_": "resurge.operators.aggregates",
    "parquet_lookup": "resurge.connectors.lookup_tables",
    "postgres_lookup": "resurge.connectors.lookup_tables",
    "posts": "resurge.connectors.posts",
    "rate": "resurge.connectors.rate",
    "run": "resurge.api.running",
    "start": "resurge.api.running",
    "sum_": "resurge.operators.aggregates",
    "value_of": "resurge.operators.keyed_state",
}
__all__ = ["__version__", *sorted(_HOMES), "errors"]  # noqa: PLE0604 (all are strings)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("resurge.model.version").VERSION
    if name == "errors":
        return import_module("resurge.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'resurge' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
