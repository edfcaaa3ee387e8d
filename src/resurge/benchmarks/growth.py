"""What one more key group and one more query cost: seconds per epoch of 20,000 posts, over queries and key groups."""

import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from resurge.benchmarks.workload import Workload, topology

POSTS_PER_EPOCH = 20_000
WARM_UP_EPOCHS = 4
EPOCHS = 16
LEAST_MEASURED = 4
# A setting that takes longer than this is measured over fewer epochs.
MOST_S = 60.0
SETTINGS = ((1, 2), (15, 2), (15, 8), (15, 64), (15, 256), (60, 16), (200, 8), (200, 32))
PASSES = 2


def measure(settings: tuple[tuple[int, int], ...], cores: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Seconds per epoch for each (queries, key groups), and what follows for one more of either."""
    from resurge.runtime.driver.session import open_session

    spark = open_session(f"local[{cores}]", "growth")
    took: dict[tuple[int, int], list[float]] = {setting: [] for setting in settings}
    try:
        with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
            tell("generating posts")
            workload = Workload(Path(folder), (WARM_UP_EPOCHS + EPOCHS) * POSTS_PER_EPOCH, POSTS_PER_EPOCH, cores)
            workload.write()
            # Twice, the second time backwards, so that a warming JVM favours no setting.
            for order in (settings, settings[::-1])[:PASSES]:
                for queries, key_groups in order:
                    tell(f"{queries} queries, {key_groups} key groups")
                    took[queries, key_groups] += epochs_s(spark, workload, queries, key_groups)
    finally:
        spark.stop()
    seconds = {setting: statistics.median(values) for setting, values in took.items()}
    return {
        "results": [
            {"queries": queries, "key_groups": groups, "partitions": queries * groups, "seconds": round(value, 4)}
            for (queries, groups), value in seconds.items()
        ],
        **ratios(seconds),
    }


def ratios(seconds: dict[tuple[int, int], float]) -> dict[str, float]:
    """The cost of 64 key groups against 2, and milliseconds for one more query; only what was measured."""
    found = {}
    if {(15, 64), (15, 2)} <= seconds.keys():
        found["key_group_ratio"] = round(seconds[15, 64] / seconds[15, 2], 3)
    if {(200, 8), (15, 8)} <= seconds.keys():
        found["per_query_ms"] = round((seconds[200, 8] - seconds[15, 8]) / 185 * 1000, 2)
    return found


def epochs_s(spark: Any, workload: Workload, queries: int, key_groups: int) -> list[float]:
    """Seconds from the end of one epoch to the end of the next, after warming up, at default settings."""
    from resurge.runtime.driver.engine import Engine, run_until_done
    from resurge.runtime.driver.options import RunOptions
    from resurge.runtime.driver.spark_runner import SparkRunner
    from resurge.telemetry.events import EpochFinished
    from resurge.telemetry.log import TelemetryLog

    telemetry, ends, began = TelemetryLog(), [time.monotonic()], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
        # The size of an epoch is what the benchmark says, and not what fits into an interval.
        options = RunOptions(folder, interval_s=0, back_pressure=False)
        engine = Engine(topology(workload, queries, key_groups), SparkRunner(spark), options, telemetry)

        def note(event: object) -> None:
            if isinstance(event, EpochFinished):
                ends.append(time.monotonic())
                if time.monotonic() - began > MOST_S and len(ends) > WARM_UP_EPOCHS + LEAST_MEASURED:
                    engine.stop()

        telemetry.listeners.append(note)
        run_until_done(engine, until_idle=True)
    return [after - before for before, after in pairwise(ends)][WARM_UP_EPOCHS:]
