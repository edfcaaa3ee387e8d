"""Resurge against Structured Streaming and a plain program, on the same files, one after another on the same machine."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from resurge.benchmarks.workload import Epoch, Workload, steady_rate
from resurge.errors import JobError

SYSTEMS = ("resurge", "hdfs", "rocksdb", "plain")


def measure(workload: Workload, queries: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Posts per second of every system for a number of queries, and the ratios."""
    rates = {}
    for system in SYSTEMS:
        progress(f"{system}, {queries} queries")
        rates[system] = steady_rate(_epochs(system, workload, queries))
    best = max(rates["hdfs"], rates["rocksdb"])
    return {
        "queries": queries,
        "resurge": round(rates["resurge"]),
        "structured_streaming": {"hdfs": round(rates["hdfs"]), "rocksdb": round(rates["rocksdb"])},
        "plain": round(rates["plain"]),
        "ratio": round(rates["resurge"] / best, 2),
        "ceiling": round(rates["resurge"] / rates["plain"], 3),
    }


def _epochs(system: str, workload: Workload, queries: int) -> list[Epoch]:
    """A process of its own per system, so that none inherits another's warm or worn JVM."""
    threads = str(workload.cores) if system == "plain" else "1"
    numbers = [workload.posts, workload.posts_per_epoch, workload.cores, queries]
    command = [sys.executable, "-m", "resurge.benchmarks.systems", system, str(workload.folder), *map(str, numbers)]
    environment = os.environ | {"POLARS_MAX_THREADS": threads}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise JobError(f"measuring {system} failed: {done.stderr.strip().splitlines()[-1:] or done.returncode}")
    return [Epoch(*row) for row in json.loads(done.stdout.strip().splitlines()[-1])]
