"""One measured system per process: `python -m resurge.benchmarks.systems SYSTEM ...` prints its epochs as JSON."""

import json
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from resurge.benchmarks.plain_program import plain_epochs
from resurge.benchmarks.workload import FILES_PER_EPOCH, WATERMARK_S, Epoch, Workload, topology, window_s

STATE_STORES = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}


def resurge_epochs(workload: Workload, queries: int) -> list[Epoch]:
    """Epochs of Resurge on local Spark, at default settings but for the interval; the first ones are smaller."""
    from resurge.runtime.driver.engine import Engine, run_until_done
    from resurge.runtime.driver.options import RunOptions
    from resurge.runtime.driver.session import open_session
    from resurge.runtime.driver.spark_runner import SparkRunner
    from resurge.telemetry.events import EpochFinished
    from resurge.telemetry.log import TelemetryLog

    spark = open_session(f"local[{workload.cores}]", "throughput")
    telemetry = TelemetryLog()
    finished: list[EpochFinished] = []
    telemetry.listeners.append(lambda event: finished.append(event) if isinstance(event, EpochFinished) else None)
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
        options = RunOptions(folder, interval_s=0, back_pressure=False)
        engine = Engine(topology(workload, queries), SparkRunner(spark), options, telemetry)
        began = time.time()
        run_until_done(engine, until_idle=True)
    spark.stop()
    # From end to end, so that planning, committing and checkpointing count too.
    starts = [began, *(event.at_s for event in finished)]
    return [Epoch(event.rows_read, event.at_s - start) for start, event in zip(starts, finished, strict=False)]


def structured_streaming_epochs(workload: Workload, queries: int, store: str) -> list[Epoch]:
    """Epochs of Structured Streaming: every query its own stream, all running together."""
    from pyspark.sql import functions as f

    from resurge.runtime.driver.session import open_session

    settings = {
        "spark.sql.streaming.stateStore.providerClass": STATE_STORES[store],
        "spark.sql.shuffle.partitions": str(workload.cores),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        # Structured Streaming computes in the JVM and is fastest with its usual compiler and collector.
        "spark.driver.extraJavaOptions": "",
        "spark.driver.memory": "4g",
    }
    spark = open_session(f"local[{workload.cores}]", "structured-streaming", settings)
    running: list[Any] = []
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
        for query in range(queries):
            size, slide = window_s(query)
            posts = (
                spark.readStream.schema("ts TIMESTAMP, tags ARRAY<STRING>")
                .option("maxFilesPerTrigger", FILES_PER_EPOCH)
                .parquet(str(workload.folder))
            )
            tags = posts.select("ts", f.explode("tags").alias("tag")).withWatermark("ts", f"{WATERMARK_S} seconds")
            counts = tags.groupBy(f.window("ts", f"{size} seconds", f"{slide} seconds"), "tag").count()
            writer = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", f"{folder}/{query}")
            running.append(writer.trigger(availableNow=True).start())
        for stream in running:
            stream.awaitTermination()
        ends = [_batch_ends(stream.recentProgress) for stream in running]
    spark.stop()
    # An epoch is over when the slowest query has finished it.
    last = [max(moments) for moments in zip(*ends, strict=False)]
    return [Epoch(workload.posts_per_epoch, after - before) for before, after in pairwise(last)]


def _batch_ends(progress: list[Any]) -> list[float]:
    from datetime import datetime

    ends = []
    for batch in progress:
        if batch["numInputRows"]:
            began = datetime.fromisoformat(batch["timestamp"].replace("Z", "+00:00")).timestamp()
            ends.append(began + batch["durationMs"]["triggerExecution"] / 1000)
    return ends


def main(arguments: list[str]) -> None:
    """Measure one system."""
    system, folder, posts, per_epoch, cores, queries = arguments[:6]
    workload = Workload(Path(folder), int(posts), int(per_epoch), int(cores))
    if system == "resurge":
        took = resurge_epochs(workload, int(queries))
    elif system == "plain":
        took = plain_epochs(workload, int(queries))
    else:
        took = structured_streaming_epochs(workload, int(queries), system)
    print(json.dumps(took))


if __name__ == "__main__":
    main(sys.argv[1:])
