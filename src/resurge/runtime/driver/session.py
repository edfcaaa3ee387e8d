"""A Spark session set up for epochs: loopback for local masters, quiet, and with cheap Python tasks."""

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from resurge.errors import JobError
from resurge.runtime.driver.gateway import java_options, kept_log, launching, refuse_other_python, running_context
from resurge.runtime.driver.spark_settings import is_in_process, required_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*]"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
AUTHENTICATE = "spark.authenticate"
AUTHENTICATE_SECRET = "spark.authenticate.secret"
LEAST_SHARED_MEMORY_BYTES = 1 << 30
# Long enough for a small machine on which starting nodes take all cores.
HEARTBEAT_TIMEOUT_S = 20.0
LEAST_HEARTBEAT_TIMEOUT_S = 1.0
HEARTBEATS_IN_TIMEOUT = 10
LONGEST_HEARTBEAT_S = 10.0
DRIVER_QUIET_AFTER_S = 600.0
MEMORY_SETTINGS = {
    # Polars: large pages.
    "_RJEM_MALLOC_CONF": "thp:always",
    # NumPy: tables of some megabytes come from memory that the process has, of which up to 128 MB stay when they are freed.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(128 << 20),
    # Arrow: what is freed stays for ten seconds instead of ten milliseconds.
    "MIMALLOC_PURGE_DELAY": "10000",
}
"""How Python workers get memory. Each epoch needs about as much as the one before; to give it back and fetch it again page by page
takes several times as long as to fill it (116 MB: 124 against 12 ms)."""


def is_on_this_machine(master: str) -> bool:
    """Whether driver and nodes all run here, so that nothing needs to listen on another address."""
    return master.startswith("local") or "127.0.0.1" in master or "localhost" in master


def open_session(
    master: str = LOCAL_MASTER, name: str = "resurge", settings: dict[str, str] | None = None, log: Path | None = None
) -> "SparkSession":
    """Start Spark, or find the session that runs already. Warnings and errors of a Spark that is started go to `log`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    if is_on_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    found = running_context()
    if found is not None:
        refuse_other_python(found)
    builder = SparkSession.builder.master(master).appName(name)
    with launching(log) as properties:
        chosen = _settings(master) | (settings or {})
        if options := java_options(properties, chosen.get(JAVA_OPTIONS, "")):
            chosen[JAVA_OPTIONS] = options
        for key, value in chosen.items():
            builder = builder.config(key, value)
        try:
            if AUTHENTICATE_SECRET in chosen:
                _start_jvm(chosen)
            spark: SparkSession = builder.getOrCreate()
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            said = f"; what Spark said is in {known}" if (known := kept_log()) is not None else ""
            raise JobError(
                f"Spark did not start on {master!r}: {reason}; expected Java 17 or newer and a master that can be reached "
                f"(make setup looks after Java){said}"
            ) from error
    return spark


def _start_jvm(settings: dict[str, str]) -> None:
    """Start the driver's JVM without the secret: its settings are arguments, which other users of the machine can read."""
    from pyspark import SparkConf, SparkContext

    if SparkContext._gateway is None:
        open_to_all = {key: value for key, value in settings.items() if key not in (AUTHENTICATE, AUTHENTICATE_SECRET)}
        SparkContext._ensure_initialized(conf=SparkConf().setAll(list(open_to_all.items())))


def heartbeat_settings(heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S) -> dict[str, str]:
    """Spark settings by which an executor that hangs, or is cut off, is lost after so many seconds without a heartbeat.

    A killed process closes its connections and is seen at once; a hung one only misses heartbeats. Spark would use
    its network time-out for them too. That one also bounds calls and shuffles, which are slow on a busy machine, so it stays.

    >>> heartbeat_settings(20)["spark.storage.blockManagerHeartbeatTimeoutMs"]
    '20000ms'
    """
    heartbeat_s = min(checked_heartbeat_timeout(heartbeat_timeout_s) / HEARTBEATS_IN_TIMEOUT, LONGEST_HEARTBEAT_S)
    return {
        "spark.executor.heartbeatInterval": _milliseconds(heartbeat_s),
        "spark.storage.blockManagerHeartbeatTimeoutMs": _milliseconds(heartbeat_timeout_s),
        "spark.network.timeoutInterval": _milliseconds(heartbeat_s),
        # Executors end themselves after so many heartbeats without answer; a driver that pauses must not lose them all the sooner.
        "spark.executor.heartbeat.maxFailures": str(round(DRIVER_QUIET_AFTER_S / heartbeat_s)),
    }


def checked_heartbeat_timeout(heartbeat_timeout_s: float) -> float:
    """The heartbeat time-out, if heartbeats can be frequent enough for it."""
    if not LEAST_HEARTBEAT_TIMEOUT_S <= heartbeat_timeout_s < float("inf"):
        raise JobError(
            f"the heartbeat time-out is {heartbeat_timeout_s} s; expected at least {LEAST_HEARTBEAT_TIMEOUT_S:g}, or "
            "healthy nodes would be declared dead too"
        )
    return heartbeat_timeout_s


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def _settings(master: str) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": "resurge.runtime.worker.daemon",
        # Loopback sockets cost a delayed acknowledgement in each direction of each task.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        **{f"spark.executorEnv.{name}": value for name, value in MEMORY_SETTINGS.items()},
        "spark.shuffle.compress": "false",
        "spark.shuffle.spill.compress": "false",
        "spark.broadcast.compress": "false",
        "spark.rdd.compress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    if is_in_process(master):
        settings["spark.locality.wait"] = "0"
        # The JVM only moves bytes here: its quick compiler and a collector with a large young generation leave the cores to tasks.
        settings[JAVA_OPTIONS] = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC -Xmn512m"
        settings["spark.driver.memory"] = "2g"
    else:
        settings |= heartbeat_settings() | required_settings(master)
    if is_on_this_machine(master):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def default_local_root(shared_memory: Path = Path("/dev/shm")) -> str:
    """Where nodes keep their local store: memory-backed where the machine has enough of that, else the temporary folder."""
    if shared_memory.is_dir() and os.access(shared_memory, os.W_OK):
        found = os.statvfs(shared_memory)
        # In many containers it has 64 MB.
        if found.f_blocks * found.f_frsize >= LEAST_SHARED_MEMORY_BYTES:
            return str(shared_memory)
    return tempfile.gettempdir()
