"""From a row's arrival to its result being committed: Resurge and Structured Streaming, on files that arrive at a steady rate."""

import bisect
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from resurge.benchmarks.systems import STATE_STORES
from resurge.benchmarks.workload import WATERMARK_S, Workload, topology, window_s
from resurge.connectors.posts import write_posts
from resurge.errors import JobError

FILES_PER_S = 10
# Both systems compile and fill their windows before they are measured.
WARM_UP_S = 30.0
SYSTEMS = ("resurge", "resurge-interval", "structured_streaming")


@dataclass(frozen=True)
class Feed:
    """Posts that arrive at a steady rate, as small files that are renamed into a folder."""

    folder: Path
    rows_per_s: int
    seconds: float

    @property
    def rows_per_file(self) -> int:
        """Rows that arrive together."""
        return self.rows_per_s // FILES_PER_S

    def prepared(self) -> list[Path]:
        """Generate all files beforehand, in a folder beside, so that only a rename is left when a file is due."""
        count = int(self.seconds * FILES_PER_S)
        waiting = self.folder.with_name(self.folder.name + "-waiting")
        write_posts(waiting, count * self.rows_per_file, self.rows_per_file, seed=0, zipf=1.3)
        self.folder.mkdir(parents=True, exist_ok=True)
        return sorted(waiting.glob("*.parquet"))

    def deliver(self, paths: Sequence[Path], arrived: list[float], stop: threading.Event) -> None:
        """Rename each file into the folder when it is due and note the moment."""
        began = time.time()
        for index, path in enumerate(paths):
            while (left := began + index / FILES_PER_S - time.time()) > 0:
                if stop.wait(left):
                    return
            os.utime(path)
            path.rename(self.folder / path.name)
            arrived.append(time.time())


@dataclass(frozen=True)
class Batch:
    """Rows that became visible together: how many there were up to then, and when."""

    rows: int
    visible_s: float


def latencies_s(arrived: Sequence[float], rows_per_file: int, batches: Iterable[Batch]) -> list[float]:
    """How long each file's rows waited until the batch that holds them was visible; rows are taken in order of arrival."""
    found: list[float] = []
    ordered = sorted(batches, key=lambda batch: batch.rows)
    ends = [batch.rows for batch in ordered]
    for index, moment in enumerate(arrived):
        place = bisect.bisect_left(ends, (index + 1) * rows_per_file)
        if place < len(ordered):
            found.append(ordered[place].visible_s - moment)
    return found


def summary(latencies: Sequence[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    p50, p99 = np.percentile(latencies, [50, 99])
    return {"p50_s": round(float(p50), 3), "p99_s": round(float(p99), 3)}


def measure(queries: Sequence[int], rows_per_s: int, seconds: float, progress: Callable[[str], None]) -> dict[str, Any]:
    """Latencies of every system for each number of queries."""
    results = []
    for number in queries:
        found = {}
        for system in SYSTEMS:
            progress(f"{system.replace('_', ' ')}, {number} queries")
            found[system] = _in_own_process(system, number, rows_per_s, seconds)
        fast, theirs = found["resurge"], found["structured_streaming"]
        results.append(
            {
                "queries": number,
                "resurge": fast,
                "resurge_default_interval": found["resurge-interval"],
                "structured_streaming": theirs,
                "ratio": round(fast["p50_s"] / theirs["p50_s"], 3),
            }
        )
    return {"rows_per_s": rows_per_s, "seconds": seconds, "results": results}


def _in_own_process(system: str, queries: int, rows_per_s: int, seconds: float) -> dict[str, float]:
    command = [sys.executable, "-m", "resurge.benchmarks.latency", system, str(queries), str(rows_per_s), str(seconds)]
    environment = os.environ | {"POLARS_MAX_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise JobError(f"measuring the latency of {system} failed: {done.stderr.strip().splitlines()[-1:] or done.returncode}")
    took: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return took


def measured(system: str, queries: int, rows_per_s: int, seconds: float) -> dict[str, float]:
    """Run one system while files arrive; every query counts, and only rows that arrived after the warm-up."""
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
        feed = Feed(Path(folder) / "posts", rows_per_s, WARM_UP_S + seconds)
        paths, arrived, stop = feed.prepared(), [], threading.Event()
        first = paths.pop(0)
        first.rename(feed.folder / first.name)
        arrived.append(time.time())
        delivery = threading.Thread(target=feed.deliver, args=(paths, arrived, stop), daemon=True)
        try:
            if system == "structured_streaming":
                batches = structured_streaming_batches(feed.folder, queries, delivery)
            else:
                interval_s = 0.0 if system == "resurge" else None
                batches = [resurge_batches(feed.folder, queries, interval_s, delivery)]
        finally:
            stop.set()
    warm = np.searchsorted(arrived, arrived[1] + WARM_UP_S)
    waited = [waits for query in batches for waits in latencies_s(arrived, feed.rows_per_file, query)[warm:]]
    if not waited:
        raise JobError(f"{system} showed no row that arrived after the first {WARM_UP_S:.0f} s; measure for longer")
    return summary(waited)


def resurge_batches(folder: Path, queries: int, interval_s: float | None, delivery: threading.Thread) -> list[Batch]:
    """Epochs of Resurge with the moment each was published; `interval_s` None is the default interval."""
    from resurge.runtime.driver.engine import Engine, run_until_done
    from resurge.runtime.driver.options import RunOptions
    from resurge.runtime.driver.session import open_session
    from resurge.runtime.driver.spark_runner import SparkRunner
    from resurge.telemetry.events import EpochFinished
    from resurge.telemetry.log import TelemetryLog

    spark = open_session("local[2]", "latency")
    telemetry, batches = TelemetryLog(), [Batch(0, 0.0)]

    def note(event: object) -> None:
        if isinstance(event, EpochFinished):
            batches.append(Batch(batches[-1].rows + event.rows_read, time.time()))

    telemetry.listeners.append(note)
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as kept:
        options = RunOptions(kept) if interval_s is None else RunOptions(kept, interval_s=interval_s)
        job = topology(Workload(folder, files_per_epoch=None), queries)
        engine = Engine(job, SparkRunner(spark), options, telemetry)

        def end_with_the_delivery() -> None:
            delivery.join()
            time.sleep(2)
            engine.stop()

        delivery.start()
        threading.Thread(target=end_with_the_delivery, daemon=True).start()
        run_until_done(engine)
    spark.stop()
    return batches[1:]


def structured_streaming_batches(folder: Path, queries: int, delivery: threading.Thread) -> list[list[Batch]]:
    """Batches of each query of Structured Streaming, all running together, each as fast as it can."""
    from pyspark.sql import functions as f

    from resurge.runtime.driver.session import open_session

    settings = {
        "spark.sql.streaming.stateStore.providerClass": STATE_STORES["hdfs"],
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        # Structured Streaming computes in the JVM and is fastest with its usual compiler and collector.
        "spark.driver.extraJavaOptions": "",
        "spark.driver.memory": "4g",
    }
    spark = open_session("local[2]", "structured-streaming", settings)
    running: list[Any] = []
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as kept:
        for query in range(queries):
            size, slide = window_s(query)
            posts = spark.readStream.schema("ts TIMESTAMP, tags ARRAY<STRING>").parquet(str(folder))
            tags = posts.select("ts", f.explode("tags").alias("tag")).withWatermark("ts", f"{WATERMARK_S} seconds")
            counts = tags.groupBy(f.window("ts", f"{size} seconds", f"{slide} seconds"), "tag").count()
            writer = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", f"{kept}/{query}")
            running.append(writer.start())
        delivery.start()
        delivery.join()
        time.sleep(5)
        progress = [stream.recentProgress for stream in running]
        for stream in running:
            stream.stop()
    spark.stop()
    return [_batches(told) for told in progress]


def _batches(progress: Iterable[Any]) -> list[Batch]:
    rows, found = 0, []
    for batch in progress:
        if batch["numInputRows"]:
            rows += batch["numInputRows"]
            began = datetime.fromisoformat(batch["timestamp"].replace("Z", "+00:00")).timestamp()
            found.append(Batch(rows, began + batch["durationMs"]["triggerExecution"] / 1000))
    return found


if __name__ == "__main__":
    name, queries_text, rate_text, seconds_text = sys.argv[1:5]
    print(json.dumps(measured(name, int(queries_text), int(rate_text), float(seconds_text))))
