"""Sources and sinks against real servers: the same rows through Kafka, Parquet and Structured Streaming; sinks against bare clients."""

import json
import secrets
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from resurge.benchmarks.connector_sinks import SINKS, measure_bare, measure_sink
from resurge.connectors.extras import client_library
from resurge.errors import JobError

SOURCES = ("resurge-kafka", "resurge-parquet", "structured-streaming-kafka")
START = datetime(2024, 1, 1)
PARTITIONS = 2


@dataclass(frozen=True)
class Servers:
    """Where the servers are, and the jars of Spark's own Kafka connector."""

    kafka: str
    postgres: str
    spark_jars: str


@dataclass(frozen=True)
class ConnectorWorkload:
    """How many rows, in epochs of how many, from a topic and from files that hold the same rows."""

    folder: Path
    servers: Servers
    rows: int
    rows_per_epoch: int
    topic: str

    def rows_of(self, epoch: int) -> pl.DataFrame:
        """The rows of one epoch: 1 ms of event time each, keys as skewed as hashtags are."""
        first = epoch * self.rows_per_epoch
        number = pl.int_range(first, first + self.rows_per_epoch, eager=True)
        # A multiplicative hash in place of a random generator: the same rows in every process.
        mixed = (number * 2_654_435_761) % 4_294_967_296
        return pl.DataFrame(
            {
                "time": pl.Series([START]).dt.cast_time_unit("us").to_physical()[0] + number * 1000,
                "user": mixed % 100_000,
                "tag": "tag" + ((4_294_967_296 / (mixed + 1)).cast(pl.Int64) % 5_000).cast(pl.String),
            }
        ).with_columns(pl.col("time").cast(pl.Datetime("us")))

    @property
    def epochs(self) -> int:
        """Whole epochs in the workload."""
        return self.rows // self.rows_per_epoch

    def write(self) -> None:
        """Fill the topic and the files."""
        from resurge.connectors.kafka.encoding import encoded, records

        admin = client_library("confluent_kafka.admin", "kafka", "this benchmark")
        client = admin.AdminClient({"bootstrap.servers": self.servers.kafka})
        client.create_topics([admin.NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result()
        producer = client_library("confluent_kafka", "kafka", "this benchmark").Producer(
            {
                "bootstrap.servers": self.servers.kafka,
                "linger.ms": 50,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 2_000_000,
            }
        )
        for epoch in range(self.epochs):
            rows = self.rows_of(epoch)
            rows.write_parquet(self.folder / f"{epoch:05d}.parquet")
            for index, value in enumerate(records(encoded(rows, (), raw=False))[1]):
                producer.produce(self.topic, value, partition=index % PARTITIONS)
            producer.flush()

    def remove(self) -> None:
        """Delete the topic."""
        admin = client_library("confluent_kafka.admin", "kafka", "this benchmark")
        client = admin.AdminClient({"bootstrap.servers": self.servers.kafka})
        client.delete_topics([self.topic])[self.topic].result()


def measure(folder: Path, servers: Servers, rows: int, rows_per_epoch: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Rows per second of every source and sink, and the ratios."""
    workload = ConnectorWorkload(folder, servers, rows, rows_per_epoch, f"resurge-bench-{secrets.token_hex(4)}")
    progress(f"writing {rows:,} rows")
    workload.write()
    try:
        sources = {}
        for system in SOURCES:
            progress(system)
            sources[system] = round(_in_process(system, workload))
    finally:
        workload.remove()
    sinks = {}
    for sink in SINKS:
        progress(f"{sink} sink")
        sinks[sink] = measure_sink(sink, workload) | {"bare_rows_per_s": measure_bare(sink, workload)}
    return {"rows": rows, "rows_per_epoch": rows_per_epoch, **summary(sources, sinks)}


def summary(sources: dict[str, int], sinks: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The figures with the ratios that matter."""
    ours = sources["resurge-kafka"]
    for figures in sinks.values():
        figures["of_parquet_sink"] = round(figures["rows_per_s"] / sinks["parquet"]["rows_per_s"], 2)
        if figures["bare_rows_per_s"]:
            figures["of_bare_client"] = round(figures["rows_per_s"] / figures["bare_rows_per_s"], 2)
    return {
        "sources": sources,
        "kafka_of_structured_streaming": round(ours / sources["structured-streaming-kafka"], 2),
        "kafka_of_parquet": round(ours / sources["resurge-parquet"], 2),
        "sinks": sinks,
    }


def _in_process(system: str, workload: ConnectorWorkload) -> float:
    """A process of its own per system, so that none inherits another's warm or worn JVM."""
    given = {
        "folder": str(workload.folder),
        "servers": msgspec.to_builtins(workload.servers),
        "rows": workload.rows,
        "rows_per_epoch": workload.rows_per_epoch,
        "topic": workload.topic,
    }
    command = [sys.executable, "-m", "resurge.benchmarks.connector_sources", system, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise JobError(f"measuring {system} failed: {done.stderr.strip().splitlines()[-3:] or done.returncode}")
    return float(json.loads(done.stdout.strip().splitlines()[-1]))
