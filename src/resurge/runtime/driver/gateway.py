"""How Spark's Java process is started, and what is checked where one runs already."""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resurge.errors import JobError
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


@contextmanager
def launching(log: Path | None) -> Iterator[dict[str, str]]:
    """Start a Java process that SIGTERM does not end before us, with its warnings and errors in a file; the settings for it.

    Whoever stops a service sends SIGTERM to all of its processes. We finish the epoch in hand, for which Spark is needed; its
    Java process ends when we do, because its standard input is closed.
    """
    from pyspark import java_gateway

    original: Any = java_gateway.Popen

    def ignore_sigterm(before: Any) -> Any:
        def prepare() -> None:
            before()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        return prepare

    def popen(command: Any, **options: Any) -> Any:
        options["preexec_fn"] = ignore_sigterm(options.get("preexec_fn", lambda: None))
        if log is None:
            return original(command, **options)
        with open_for_owner(log) as errors:
            return original(command, **options, stderr=errors)

    java_gateway.Popen = popen
    try:
        if log is None:
            yield {}
        else:
            with tempfile.NamedTemporaryFile("w", prefix="resurge-log4j2-", suffix=".properties") as file:
                file.write(LOG4J)
                file.flush()
                yield {"log4j2.configurationFile": file.name, "resurge.spark.log": str(log.absolute())}
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
