"""One measured source per process: `python -m resurge.benchmarks.connector_sources SYSTEM JSON` prints rows per second.

The same windowed count behind every source, on two cores, in steady state: the median over the later half of the epochs.
"""

import json
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from resurge.benchmarks.connectors import ConnectorWorkload, Servers

WINDOW = "10 seconds"
CORES = 2


def resurge_rate(workload: ConnectorWorkload, *, from_kafka: bool) -> float:
    """Rows per second of a windowed count in Resurge on local Spark."""
    from resurge.api.builder import TopologyBuilder
    from resurge.connectors.files import files
    from resurge.connectors.kafka.source import kafka
    from resurge.connectors.sinks import DiscardSink
    from resurge.operators.aggregates import count
    from resurge.runtime.driver.engine import Engine, run_until_done
    from resurge.runtime.driver.options import RunOptions
    from resurge.runtime.driver.session import open_session
    from resurge.runtime.driver.spark_runner import SparkRunner
    from resurge.telemetry.events import EpochFinished
    from resurge.telemetry.log import TelemetryLog

    limit = workload.rows_per_epoch
    if from_kafka:
        source: Any = kafka(workload.topic, workload.servers.kafka, workload.rows_of(0).schema, max_rows_per_epoch=limit)
    else:
        source = files(str(workload.folder / "*.parquet"), max_rows_per_epoch=limit)
    job = TopologyBuilder("bench")
    rows = job.source("rows", source, event_time="time", watermark=WINDOW)
    rows.window("counts", WINDOW, key="tag", n=count()).query(sink=DiscardSink())
    spark = open_session(f"local[{CORES}]", "bench")
    telemetry = TelemetryLog()
    finished: list[tuple[float, int]] = []
    telemetry.listeners.append(
        lambda event: finished.append((event.at_s, event.rows_read)) if isinstance(event, EpochFinished) else None
    )
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
        options = RunOptions(folder, interval_s=0)
        run_until_done(Engine(job.build(), SparkRunner(spark), options, telemetry), until_idle=True)
    spark.stop()
    return steady([(rows / (end - begin)) for (begin, _), (end, rows) in pairwise(finished)])


def structured_streaming_rate(workload: ConnectorWorkload) -> float:
    """Rows per second of the same count with Spark's own Kafka connector, all in the JVM."""
    from pyspark.sql import functions as f

    from resurge.runtime.driver.session import open_session

    settings = {
        "spark.jars": ",".join(str(path) for path in sorted(Path(workload.servers.spark_jars).glob("*.jar"))),
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        # Structured Streaming computes in the JVM and is fastest with its usual compiler and collector.
        "spark.driver.extraJavaOptions": "",
        "spark.driver.memory": "4g",
    }
    spark = open_session(f"local[{CORES}]", "structured-streaming", settings)
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", workload.servers.kafka)
        .option("subscribe", workload.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", workload.rows_per_epoch)
        .load()
    )
    parsed = f.from_json(f.col("value").cast("string"), "time TIMESTAMP, user LONG, tag STRING").alias("row")
    rows = records.select(parsed).select("row.*").withWatermark("time", WINDOW)
    counts = rows.groupBy(f.window("time", WINDOW), "tag").count()
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
        writer = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", folder)
        stream = writer.trigger(availableNow=True).start()
        stream.awaitTermination()
        progress = [batch for batch in stream.recentProgress if batch["numInputRows"]]
    spark.stop()
    return steady([batch["numInputRows"] / (batch["durationMs"]["triggerExecution"] / 1000) for batch in progress])


def steady(rates: list[float]) -> float:
    """The median of the later half."""
    return statistics.median(rates[len(rates) // 2 :])


def main(arguments: list[str]) -> None:
    """Measure one system."""
    system, given = arguments[0], json.loads(arguments[1])
    workload = ConnectorWorkload(
        Path(given["folder"]), Servers(**given["servers"]), given["rows"], given["rows_per_epoch"], given["topic"]
    )
    began = time.monotonic()
    if system == "structured-streaming-kafka":
        rate = structured_streaming_rate(workload)
    else:
        rate = resurge_rate(workload, from_kafka=system == "resurge-kafka")
    print(f"{system}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(json.dumps(rate))


if __name__ == "__main__":
    main(sys.argv[1:])
