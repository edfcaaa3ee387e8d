"""How Spark's Java process is started, where its messages go, and what is checked where one runs already."""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resurge.errors import EngineError, JobError
from resurge.telemetry.log import open_for_owner

if TYPE_CHECKING:
    from pyspark import SparkContext

LOG_BYTES = 10_000_000
PROBE_S = 60
END_S = 20
# The log is rolled by size: a job may run for months.
LOG4J = f"""
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${{sys:resurge.spark.log}}
appender.file.filePermissions = rw-------
appender.file.filePattern = ${{sys:resurge.spark.log}}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {LOG_BYTES}
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""


def running_context() -> "SparkContext | None":
    """The Spark context that this process has already, if any."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context


@dataclass
class SparkLog:
    """The file that the Java process writes its warnings and errors to; one without a name of its own is temporary."""

    path: Path
    is_kept: bool

    def remove(self) -> None:
        """Remove a temporary file, unless an error has pointed to it."""
        if not self.is_kept:
            for path in self.path.parent.glob(f"{self.path.name}*"):
                path.unlink(missing_ok=True)


_logs: list[SparkLog] = []
"""The newest last: a Java process outlives its sessions, and so does its log."""


def kept_log() -> Path | None:
    """Where an error can point to for what Spark said; None if this process has started no Spark."""
    if not _logs:
        return None
    _logs[-1].is_kept = True
    return _logs[-1].path


@atexit.register
def remove_temporary_logs() -> None:
    """Remove the logs that no error has pointed to."""
    for log in _logs:
        log.remove()


@contextmanager
def pointing_to_log() -> Iterator[None]:
    """An error of Spark says where Spark's own messages are."""
    try:
        yield
    except EngineError as error:
        if (log := kept_log()) is None:
            raise
        raise EngineError(f"{error}; what Spark said is in {log}") from error


def _temporary_log() -> Path:
    handle, name = tempfile.mkstemp(prefix="resurge-spark-", suffix=".log")
    os.close(handle)
    return Path(name)


@contextmanager
def launching(log: Path | None) -> Iterator[dict[str, str]]:
    """Start a Java process that SIGTERM does not end before us, with its warnings and errors in a file; the settings for it.

    Whoever stops a service sends SIGTERM to all of its processes. We finish the current epoch, for which Spark is needed; its
    Java process ends when we do, because its standard input is closed. Without a file of its own, a temporary one is used.
    """
    from pyspark import SparkContext, java_gateway

    if SparkContext._gateway is not None:
        yield {}
        return
    original: Any = java_gateway.Popen
    made = SparkLog(log or _temporary_log(), is_kept=log is not None)
    _logs.append(made)

    def ignore_sigterm(before: Any) -> Any:
        def prepare() -> None:
            before()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        return prepare

    def popen(command: Any, **options: Any) -> Any:
        options["preexec_fn"] = ignore_sigterm(options.get("preexec_fn", lambda: None))
        with open_for_owner(made.path) as errors:
            return original(command, **options, stderr=errors)

    java_gateway.Popen = popen
    try:
        with tempfile.NamedTemporaryFile("w", prefix="resurge-log4j2-", suffix=".properties") as file:
            file.write(LOG4J)
            file.flush()
            yield {"log4j2.configurationFile": file.name, "resurge.spark.log": str(made.path.absolute())}
    finally:
        java_gateway.Popen = original


def end_java_process() -> None:
    """End Spark's Java process, which outlives its sessions: the next one starts another, on the host that this thread is on."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(END_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def java_options(properties: dict[str, str], others: str) -> str:
    """Java options with system properties added."""
    return " ".join([*([others] if others else []), *(f'"-D{name}={value}"' for name, value in properties.items())])


def refuse_other_python(context: "SparkContext") -> None:
    """A session that the user has started runs tasks with the Python that was set then, which may not have Resurge."""
    found = shutil.which(context.pythonExec)
    if not context.master.startswith("local") or (found and Path(found).parent == Path(sys.executable).parent):
        return
    code = f"import sys, resurge; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    probed = found and subprocess.run([found, "-c", code], capture_output=True, timeout=PROBE_S, check=False)
    if not probed or probed.returncode != 0:
        raise JobError(
            f"the Spark session that runs already would run tasks with {found or context.pythonExec}, which has no Resurge for "
            f"Python {sys.version_info[0]}.{sys.version_info[1]}; expected {sys.executable}: set PYSPARK_PYTHON to it before the "
            "session is built, as in os.environ['PYSPARK_PYTHON'] = sys.executable, or let Resurge start Spark"
        )
