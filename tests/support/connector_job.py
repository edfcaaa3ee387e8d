"""A job from Kafka to one kind of sink, run as a process of its own so that it can be killed; and what it must show.

python -m tests.support.connector_job FOLDER inline|MASTER CONNECTOR
"""

import json
import random
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from resurge.api.builder import TopologyBuilder
from resurge.connectors.contracts import Sink
from resurge.connectors.delta.sink import DeltaSink
from resurge.connectors.iceberg.sink import IcebergSink
from resurge.connectors.kafka.sink import KafkaSink
from resurge.connectors.kafka.source import kafka
from resurge.connectors.postgres.sink import PostgresSink
from resurge.model.topology import Topology
from resurge.operators.aggregates import count, sum_
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.telemetry.log import TelemetryLog
from resurge.testing.inline_runner import InlineRunner
from tests.support import kafka as broker

CONNECTORS = ("kafka", "postgres", "delta", "iceberg")
SCHEMA = pl.Schema({"at": pl.Datetime("us"), "who": pl.String, "amount": pl.Int64, "number": pl.Int64})
START = datetime(2024, 1, 1)
QUERIES = ("passed", "windows", "totals")


class Settings(msgspec.Struct, frozen=True):
    """Where a job reads and writes, and how it is cut into epochs."""

    servers: str
    postgres: str
    name: str
    rows: int = 4_000
    rows_per_epoch: int = 100
    interval_s: float = 0.0
    seed: int = 1


def input_rows(settings: Settings) -> pl.DataFrame:
    """Rows in order of event time, less than a second out of order."""
    rng = random.Random(settings.seed)
    rows = [
        (START + timedelta(seconds=n / 20 + rng.uniform(0, 0.9)), rng.choice("abcdefgh"), rng.randrange(100), n)
        for n in range(settings.rows)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def prepare(folder: Path, settings: Settings, connector: str) -> None:
    """Fill the input topic and make the output topics."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_bytes(msgspec.json.encode(settings))
    broker.create(settings.servers, settings.name, 2)
    values = [{**row, "at": row["at"].isoformat()} for row in input_rows(settings).iter_rows(named=True)]
    broker.send(settings.servers, settings.name, values)
    for query in QUERIES if connector == "kafka" else ():
        broker.create(settings.servers, f"{settings.name}.{query}", 2)


def sink(folder: Path, settings: Settings, connector: str, query: str) -> Sink:
    """Where a query's rows go; running totals are an update stream, which PostgreSQL merges by key."""
    makers: dict[str, Callable[[], Sink]] = {
        "kafka": lambda: KafkaSink(f"{settings.name}.{query}", settings.servers, key="who"),
        "postgres": lambda: PostgresSink(f"{settings.name}_{query}", settings.postgres, ["who"] if query == "totals" else []),
        "delta": lambda: DeltaSink(folder / "delta" / query),
        "iceberg": lambda: IcebergSink(f"crashes.{query}", "lake", iceberg_catalog(folder)),
    }
    return makers[connector]()


def iceberg_catalog(folder: Path) -> dict[str, str]:
    """A catalog in SQLite, with its tables beside it."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/iceberg"}


def topology(folder: Path, settings: Settings, connector: str) -> Topology:
    """A stateless query, windows that are shown once, and running totals."""
    job = TopologyBuilder("connected", key_groups=4)
    source = kafka(settings.name, settings.servers, SCHEMA, max_rows_per_epoch=settings.rows_per_epoch)
    rows = job.source("rows", source, event_time="at", watermark="1s")
    streams = {
        "passed": rows.filter("passed", pl.col("amount") < 50),
        "windows": rows.window("windows", "10s", "5s", key="who", emit="final", n=count(), total=sum_("amount")),
        "totals": rows.aggregate("totals", key="who", n=count(), total=sum_("amount")),
    }
    for priority, (name, stream) in enumerate(streams.items(), 1):
        stream.query(name, priority=priority, sink=sink(folder, settings, connector, name))
    return job.build()


def wanted(settings: Settings) -> dict[str, pl.DataFrame]:
    """What the server must show, computed from the input alone."""
    rows = input_rows(settings)
    starts = [rows.with_columns(window_start=pl.col("at").dt.truncate("5s").dt.offset_by(f"-{back}s")) for back in (0, 5)]
    windows = pl.concat(starts).group_by("who", "window_start").agg(n=pl.len().cast(pl.Int64), total=pl.sum("amount"))
    return {
        "passed": rows.filter(pl.col("amount") < 50).select("number", "who", "amount", "at"),
        "windows": windows.select("who", "window_start", "n", "total"),
        "totals": rows.group_by("who").agg(n=pl.len().cast(pl.Int64), total=pl.sum("amount")),
    }


def shown(folder: Path, settings: Settings, connector: str, query: str) -> pl.DataFrame:
    """The server's own view of a query's output."""
    if connector == "kafka":
        objects = broker.objects(settings.servers, f"{settings.name}.{query}")
        found = pl.DataFrame(objects, infer_schema_length=None)
        times = [name for name in ("at", "window_start", "window_end") if name in found.columns]
        return found.with_columns(pl.col(times).str.to_datetime(time_unit="us"))
    if connector == "postgres":
        import psycopg

        with psycopg.connect(settings.postgres) as connection:
            cursor = connection.execute(f"SELECT * FROM {settings.name}_{query}")  # type: ignore[arg-type]
            names = [column.name for column in cursor.description or ()]
            return pl.DataFrame(cursor.fetchall(), schema=names, orient="row", infer_schema_length=None)
    if connector == "iceberg":
        from pyiceberg.catalog import load_catalog

        table = load_catalog("lake", **iceberg_catalog(folder)).load_table(f"crashes.{query}")
        found = pl.from_arrow(table.scan().to_arrow())
        assert isinstance(found, pl.DataFrame)
        return found
    return pl.read_delta(str(folder / "delta" / query))


def differences(folder: Path, settings: Settings, connector: str) -> dict[str, Any]:
    """Rows lost and rows too many, over all queries, row for row."""
    lost = repeated = rows = 0
    for query, right in wanted(settings).items():
        found = shown(folder, settings, connector, query).select(right.columns)
        if query == "totals" and connector != "postgres":
            # An update stream: of every key the rows grow; the last one must be right, and none may come twice.
            repeated += found.height - found.unique().height
            found = found.sort("n").unique("who", keep="last")
        rows += found.height
        both = (
            right.group_by(pl.all())
            .len("wanted")
            .join(found.group_by(pl.all()).len("found"), on=right.columns, how="full", coalesce=True)
        )
        change = both.select(
            pl.col("found").fill_null(0).cast(pl.Int64) - pl.col("wanted").fill_null(0).cast(pl.Int64)
        ).to_series()
        lost += -int(change.filter(change < 0).sum())
        repeated += int(change.filter(change > 0).sum())
    return {"rows": rows, "lost": lost, "repeated": repeated}


def main(arguments: list[str]) -> None:
    """Run to the end of the input, in this process."""
    folder, master, connector = Path(arguments[0]), arguments[1], arguments[2]
    settings = msgspec.json.decode((folder / "settings.json").read_bytes(), type=Settings)
    if master == "inline":
        runner: Any = InlineRunner(2)
    else:
        from resurge.runtime.embedded_cluster.runner import runner_on

        runner = runner_on(master, "connected")
    options = RunOptions(
        str(folder / "job"), interval_s=settings.interval_s, checkpoint_interval=5, local_root=str(folder), back_pressure=False
    )
    with TelemetryLog(folder / "telemetry.jsonl") as telemetry:
        engine = Engine(topology(folder, settings, connector), runner, options, telemetry)
        run_until_done(engine, until_idle=True, drain=True)
    print(json.dumps({"done": True}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
