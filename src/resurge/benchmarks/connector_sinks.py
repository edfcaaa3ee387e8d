"""Sinks against the bare client library with the same batches: stage and publish, epoch by epoch."""

import secrets
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from resurge.connectors.contracts import JobReference, Sink
from resurge.connectors.delta.sink import DeltaSink
from resurge.connectors.extras import client_library
from resurge.connectors.iceberg.sink import IcebergSink
from resurge.connectors.kafka.sink import KafkaSink
from resurge.connectors.postgres.sink import PostgresSink
from resurge.connectors.sinks import ParquetSink

if TYPE_CHECKING:
    from resurge.benchmarks.connectors import ConnectorWorkload

SINKS = ("parquet", "kafka", "postgres", "delta", "iceberg")
EPOCHS = 8
SMALL_EPOCHS = 40
PARTS = 2
QUERY = "bench"


def measure_sink(kind: str, workload: "ConnectorWorkload") -> dict[str, float]:
    """Rows per second with the workload's epochs, and epochs per second with epochs of two rows."""
    with _Target(kind, workload) as target:
        sink = target.sink()
        sink.open(QUERY, workload.rows_of(0).schema, JobReference(secrets.token_hex(8), "bench", str(workload.folder)))
        took_s = [_epoch(sink, epoch + 1, workload.rows_of(epoch)) for epoch in range(EPOCHS)]
        small = workload.rows_of(0).head(PARTS)
        began = time.perf_counter()
        for epoch in range(SMALL_EPOCHS):
            _epoch(sink, EPOCHS + epoch + 1, small)
        epochs_per_s = SMALL_EPOCHS / (time.perf_counter() - began)
    rows_per_s = workload.rows_per_epoch / statistics.median(took_s[1:])
    return {"rows_per_s": round(rows_per_s), "epochs_per_s": round(epochs_per_s, 1)}


def _epoch(sink: Sink, epoch: int, rows: pl.DataFrame) -> float:
    began = time.perf_counter()
    size = -(-rows.height // PARTS)
    parts = [sink.stage(QUERY, epoch, f"p{n}", "bench", rows.slice(n * size, size)) for n in range(PARTS)]
    sink.publish(parts)
    return time.perf_counter() - began


def measure_bare(kind: str, workload: "ConnectorWorkload") -> int | None:
    """Rows per second of the client library alone, with the same batches, each committed; None where there is no client."""
    if kind == "parquet":
        return None
    with _Target(kind, workload) as target:
        write = _BARE_CLIENTS[kind](target)
        took_s = []
        for epoch in range(EPOCHS):
            rows = workload.rows_of(epoch)
            began = time.perf_counter()
            write(rows)
            took_s.append(time.perf_counter() - began)
    return round(workload.rows_per_epoch / statistics.median(took_s[1:]))


class _Target:
    """A topic, table or folder of its own, removed afterwards."""

    def __init__(self, kind: str, workload: "ConnectorWorkload") -> None:
        self.kind, self.servers = kind, workload.servers
        self.name = f"resurge_bench_{secrets.token_hex(4)}"
        self.folder = workload.folder / self.name

    def __enter__(self) -> "_Target":
        if self.kind == "kafka":
            admin = client_library("confluent_kafka.admin", "kafka", "this benchmark")
            client = admin.AdminClient({"bootstrap.servers": self.servers.kafka})
            client.create_topics([admin.NewTopic(self.name, 2, 1)])[self.name].result()
        return self

    def __exit__(self, *_: object) -> None:
        if self.kind == "kafka":
            client = client_library("confluent_kafka.admin", "kafka", "this benchmark").AdminClient(
                {"bootstrap.servers": self.servers.kafka}
            )
            for future in client.delete_topics([self.name, f"{self.name}.resurge"]).values():
                future.exception()
        if self.kind == "postgres":
            with client_library("psycopg", "postgres", "this benchmark").connect(self.servers.postgres) as connection:
                connection.execute(f"DROP TABLE IF EXISTS {self.name}")

    def sink(self) -> Sink:
        """The sink that writes here."""
        makers: dict[str, Callable[[], Sink]] = {
            "parquet": lambda: ParquetSink(self.folder),
            "kafka": lambda: KafkaSink(self.name, self.servers.kafka),
            "postgres": lambda: PostgresSink(self.name, self.servers.postgres),
            "delta": lambda: DeltaSink(self.folder),
            "iceberg": lambda: IcebergSink(f"bench.{self.name}", "bench", self.catalog()),
        }
        return makers[self.kind]()

    def catalog(self) -> dict[str, str]:
        """An Iceberg catalog in SQLite."""
        self.folder.mkdir(exist_ok=True)
        return {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}"}


def _bare_kafka(target: _Target) -> Callable[[pl.DataFrame], None]:
    """A transactional producer and a JSON encoder, as one would write it by hand."""
    producer = client_library("confluent_kafka", "kafka", "this benchmark").Producer(
        {
            "bootstrap.servers": target.servers.kafka,
            "transactional.id": target.name,
            "linger.ms": 20,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions()
    encode = msgspec.json.Encoder().encode

    def write(rows: pl.DataFrame) -> None:
        producer.begin_transaction()
        for index, row in enumerate(rows.iter_rows(named=True)):
            producer.produce(target.name, encode(row))
            if index % 10_000 == 0:
                producer.poll(0)
        producer.commit_transaction()

    return write


def _bare_postgres(target: _Target) -> Callable[[pl.DataFrame], None]:
    """psycopg's own binary COPY, row by row."""
    connection: Any = client_library("psycopg", "postgres", "this benchmark").connect(target.servers.postgres)
    connection.execute(f'CREATE TABLE {target.name} ("time" timestamp, "user" int8, tag text)')
    connection.commit()

    def write(rows: pl.DataFrame) -> None:
        with connection.cursor() as cursor, cursor.copy(f"COPY {target.name} FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["timestamp", "int8", "text"])
            for row in rows.iter_rows():
                copy.write_row(row)
        connection.commit()

    return write


def _bare_delta(target: _Target) -> Callable[[pl.DataFrame], None]:
    """The library's own append."""
    library = client_library("deltalake", "delta", "this benchmark")
    return lambda rows: library.write_deltalake(str(target.folder), rows.to_arrow(), mode="append")


def _bare_iceberg(target: _Target) -> Callable[[pl.DataFrame], None]:
    """The library's own append."""
    catalog = client_library("pyiceberg.catalog", "iceberg", "this benchmark").load_catalog("bench", **target.catalog())
    catalog.create_namespace_if_not_exists("bench")

    def write(rows: pl.DataFrame) -> None:
        catalog.create_table_if_not_exists(f"bench.{target.name}", rows.to_arrow().schema).append(rows.to_arrow())

    return write


_BARE_CLIENTS: dict[str, Callable[[_Target], Callable[[pl.DataFrame], None]]] = {
    "kafka": _bare_kafka,
    "postgres": _bare_postgres,
    "delta": _bare_delta,
    "iceberg": _bare_iceberg,
}
