"""Spark's standalone master and workers: their commands, their environment, and the settings of jobs on them."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

from resurge.errors import ClusterError
from resurge.runtime.driver.session import AUTHENTICATE, AUTHENTICATE_SECRET, HEARTBEAT_TIMEOUT_S, heartbeat_settings
from resurge.runtime.embedded_cluster.processes import MARK
from resurge.runtime.embedded_cluster.state import NodeSpec

HOST = "127.0.0.1"
DAEMON_MEMORY = "192m"
# C1 alone and one collector thread: many small JVMs share few cores, and a node's start is mostly class loading.
QUICK_JVM = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
SMALL_JVM = [*QUICK_JVM, "-Xss512k"]
MODULE_OPTIONS = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.nio", "sun.nio.ch")]
# An executor that lives for long would otherwise log without end; a worker reads these for its executors.
ROLLING_LOGS = [
    "-Dspark.executor.logs.rolling.strategy=size",
    f"-Dspark.executor.logs.rolling.maxSize={1 << 20}",
    "-Dspark.executor.logs.rolling.maxRetainedFiles=2",
]
# Tasks read these: the name of their node, its failure domain, and how fast it may pretend to be.
NODE_VARIABLE = "RESURGE_NODE"
DOMAIN_VARIABLE = "RESURGE_DOMAIN"
CPU_SHARE_VARIABLE = "RESURGE_CPU_SHARE"
# Spark's own, which a worker also gives to its executors.
SECRET_VARIABLE = "_SPARK_AUTH_SECRET"


def spark_home() -> Path:
    """The folder of the pip package, found without importing it."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ClusterError("an embedded cluster needs the pyspark package; install it with pip install pyspark")
    return Path(found.origin).parent


def scala_version() -> str:
    """The Scala that Spark's jars were compiled for, such as 2.13."""
    for jar in (spark_home() / "jars").glob("spark-core_*.jar"):
        return jar.name.removeprefix("spark-core_").partition("-")[0]
    raise ClusterError(f"there is no spark-core in {spark_home() / 'jars'}; install pyspark again")


def java_command() -> str:
    """The java to start daemons with: that of JAVA_HOME, else the first on the path."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None or not Path(found).exists():
        raise ClusterError(
            f"there is no java{' in JAVA_HOME' if home else ''}; expected Java 17 or newer (make setup looks after it)"
        )
    return found


def master_command(port: int, host: str = HOST) -> list[str]:
    """A master that listens on this port and nowhere else."""
    # On its own port or not at all: another one would not be the one in the URL.
    properties = ["-Dspark.master.rest.enabled=false", "-Dspark.port.maxRetries=0"]
    address = ["--host", host, "--port", str(port), "--webui-port", "0"]
    return [*_java(*properties), "org.apache.spark.deploy.master.Master", *address]


def worker_command(master_url: str, cores: int, memory: str, folder: Path, host: str = HOST) -> list[str]:
    """A worker whose executors work in `<folder>/<application>/<executor id>`."""
    address = ["--host", host, "--port", "0", "--webui-port", "0"]
    size = ["--cores", str(cores), "--memory", memory, "--work-dir", str(folder)]
    return [*_java(*ROLLING_LOGS), "org.apache.spark.deploy.worker.Worker", *address, *size, master_url]


def _java(*properties: str) -> list[str]:
    # spark-class would start another JVM first, only to compose this command: a second for each node.
    options = [f"-Xmx{DAEMON_MEMORY}", *SMALL_JVM, *MODULE_OPTIONS, "-Dspark.authenticate=true", *properties]
    return [java_command(), "-cp", f"{spark_home()}/jars/*", *options]


def daemon_environment(mark: str, secret: str, host: str = HOST) -> dict[str, str]:
    """The environment of a daemon: its only address, the cluster's secret, and a mark that every process below it inherits."""
    return os.environ | {
        "SPARK_HOME": str(spark_home()),
        # A worker refuses to compose an executor's command without it.
        "SPARK_SCALA_VERSION": scala_version(),
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_HOSTNAME": host,
        MARK: mark,
        # Other users of the machine can read arguments, but not the environment.
        SECRET_VARIABLE: secret,
    }


def node_environment(mark: str, secret: str, spec: NodeSpec, local_folder: Path, host: str = HOST) -> dict[str, str]:
    """The environment of a node: also what its tasks may ask, and a folder for its shuffle files."""
    return daemon_environment(mark, secret, host) | {
        NODE_VARIABLE: spec.name,
        DOMAIN_VARIABLE: spec.domain,
        CPU_SHARE_VARIABLE: repr(spec.cpu_share),
        "SPARK_LOCAL_DIRS": str(local_folder),
    }


def cluster_settings(
    cores_per_node: int = 1, memory: str = "700m", heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S, secret: str = ""
) -> dict[str, str]:
    """Spark settings of a job on an embedded cluster: one executor per node."""
    return {
        **heartbeat_settings(heartbeat_timeout_s),
        AUTHENTICATE: "true",
        AUTHENTICATE_SECRET: secret,
        "spark.executor.cores": str(cores_per_node),
        "spark.executor.memory": memory,
        "spark.executor.extraJavaOptions": " ".join(SMALL_JVM),
        "spark.driver.extraJavaOptions": " ".join(QUICK_JVM),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        # Start with the executors that there are: the driver decides when enough nodes are warm.
        "spark.scheduler.minRegisteredResourcesRatio": "0",
    }
