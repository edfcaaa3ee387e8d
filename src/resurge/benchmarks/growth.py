"""What one more key group and one more query cost: seconds per epoch of 20,000 posts, over queries and key groups."""

import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resurge.benchmarks.workload import Workload, topology

if TYPE_CHECKING:
    from resurge.runtime.driver.runner import Runner

POSTS_PER_EPOCH = 20_000
WARM_UP_EPOCHS = 4
EPOCHS = 16
LEAST_MEASURED = 4
# A setting that takes longer than this is measured over fewer epochs.
MOST_S = 60.0
SETTINGS = ((1, 2), (15, 2), (15, 8), (15, 64), (15, 256), (60, 16), (200, 8), (200, 32))
CLUSTER_SETTINGS = ((15, 4), (15, 64))
PASSES = 2

Setting = tuple[int, int]
"""A number of queries and one of key groups."""


def measure(settings: tuple[Setting, ...], cores: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Seconds per epoch for each setting in local mode, and what follows for one more query or key group."""
    from resurge.runtime.driver.session import open_session
    from resurge.runtime.driver.spark_runner import SparkRunner

    spark = open_session(f"local[{cores}]", "growth")
    try:
        return _measured(settings, lambda: SparkRunner(spark), progress)
    finally:
        spark.stop()


def measure_cluster(settings: tuple[Setting, ...], nodes: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """The same on an embedded cluster of so many nodes."""
    from resurge.runtime.driver.spark_runner import SparkRunner
    from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
    from resurge.runtime.embedded_cluster.runner import cluster_runner

    with EmbeddedCluster(nodes) as cluster, cluster_runner(cluster, "growth") as first:
        return {"nodes": nodes, **_measured(settings, lambda: SparkRunner(first.spark, first.cpu_share), progress)}


def _measured(settings: tuple[Setting, ...], runner: Callable[[], "Runner"], progress: Callable[[str], None]) -> dict[str, Any]:
    took: dict[Setting, list[float]] = {setting: [] for setting in settings}
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
        progress("generating posts")
        workload = Workload(Path(folder), (WARM_UP_EPOCHS + EPOCHS) * POSTS_PER_EPOCH, POSTS_PER_EPOCH)
        workload.write()
        # Twice, the second time backwards, so that a warming JVM favours no setting.
        for order in (settings, settings[::-1])[:PASSES]:
            for queries, key_groups in order:
                progress(f"{queries} queries, {key_groups} key groups")
                took[queries, key_groups] += epochs_s(runner(), workload, queries, key_groups)
    seconds = {setting: statistics.median(values) for setting, values in took.items()}
    return {
        "results": [
            {"queries": queries, "key_groups": groups, "partitions": queries * groups, "seconds": round(value, 4)}
            for (queries, groups), value in seconds.items()
        ],
        **ratios(seconds),
    }


def ratios(seconds: dict[Setting, float]) -> dict[str, float]:
    """The cost of 64 key groups against the fewest, and milliseconds for one more query; only what was measured."""
    found = {}
    fewest = min((groups for queries, groups in seconds if queries == 15), default=64)
    if fewest < 64 and (15, 64) in seconds:
        found["key_group_ratio"] = round(seconds[15, 64] / seconds[15, fewest], 3)
    if {(200, 8), (15, 8)} <= seconds.keys():
        found["per_query_ms"] = round((seconds[200, 8] - seconds[15, 8]) / 185 * 1000, 2)
    return found


def epochs_s(runner: "Runner", workload: Workload, queries: int, key_groups: int) -> list[float]:
    """Seconds from the end of one epoch to the end of the next, after warming up, at default settings."""
    from resurge.runtime.driver.engine import Engine, run_until_done
    from resurge.runtime.driver.options import RunOptions
    from resurge.telemetry.events import EpochFinished
    from resurge.telemetry.log import TelemetryLog

    telemetry, ends, began = TelemetryLog(), [time.monotonic()], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
        # The size of an epoch is what the benchmark says, and not what fits into an interval.
        options = RunOptions(folder, interval_s=0, back_pressure=False)
        engine = Engine(topology(workload, queries, key_groups), runner, options, telemetry)

        def note(event: object) -> None:
            if isinstance(event, EpochFinished):
                ends.append(time.monotonic())
                if time.monotonic() - began > MOST_S and len(ends) > WARM_UP_EPOCHS + LEAST_MEASURED:
                    engine.stop()

        telemetry.listeners.append(note)
        run_until_done(engine, until_idle=True)
    return [after - before for before, after in pairwise(ends)][WARM_UP_EPOCHS:]
