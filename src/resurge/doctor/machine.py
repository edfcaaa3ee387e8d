"""This machine: Python, Java, packages, addresses, space, memory."""

import importlib.metadata
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from resurge.doctor.findings import Finding, fine, note, problem
from resurge.runtime.driver.session import default_local_root
from resurge.telemetry.wording import bytes_in_words

LEAST_PYTHON = (3, 11)
LEAST_JAVA = 17
LEAST_SPARK, FIRST_UNKNOWN_SPARK = (4, 3), (5, 0)
LEAST_FREE_BYTES = 2 * 1024**3
LEAST_MEMORY_BYTES = 4 * 1024**3
NEEDED = ("polars", "pyarrow", "numpy", "msgspec", "fsspec")
EXTRAS = {
    "dashboard": "uvicorn",
    "metrics": "prometheus_client",
    "traces": "opentelemetry-sdk",
    "kafka": "confluent-kafka",
    "postgres": "psycopg",
    "delta": "deltalake",
    "iceberg": "pyiceberg",
}
TIMEOUT_S = 10


def machine_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Everything that can be known without starting Spark."""
    yield python_finding(sys.version_info[:3])
    yield java_finding(environment)
    yield spark_finding(_version("pyspark"))
    yield packages_finding({name: _version(name) for name in NEEDED})
    yield extras_finding({extra: _version(package) for extra, package in EXTRAS.items()})
    yield address_finding(socket.gethostname())
    yield port_finding()
    yield memory_finding()
    for name, folder in (("local store", default_local_root()), ("temporary folder", tempfile.gettempdir())):
        yield space_finding(name, Path(folder))


def python_finding(found: tuple[int, ...]) -> Finding:
    """Python is new enough."""
    words = f"Python {'.'.join(map(str, found))}, resurge {_version('resurge') or 'from source'}, {platform.platform()}"
    if found < LEAST_PYTHON:
        return problem("Python", words, "install Python 3.11 or newer, on the executors too")
    return fine("Python", words)


def java_finding(environment: Mapping[str, str]) -> Finding:
    """Java is there and new enough for Spark."""
    home = environment.get("JAVA_HOME")
    command = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    advice = f"install Java {LEAST_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one"
    if command is None or not Path(command).exists():
        return problem("Java", f"no java command{f' at {command}' if command else ''}", advice)
    try:
        ended = subprocess.run([command, "-version"], capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return problem("Java", f"{command} does not run: {error}", advice)
    match = re.search(r'version "(?:1\.)?(\d+)', ended.stderr + ended.stdout)
    if match is None:
        return problem("Java", f"{command} does not tell its version", advice)
    words = f"Java {match[1]} at {command}"
    return fine("Java", words) if int(match[1]) >= LEAST_JAVA else problem("Java", words, advice)


def spark_finding(found: str | None) -> Finding:
    """PySpark is of a version that was tested."""
    advice = "pip install 'pyspark>=4.3,<5', the version of the cluster"
    if found is None:
        return problem("Spark", "PySpark is not installed", advice)
    if not LEAST_SPARK <= tuple(map(int, re.findall(r"\d+", found)[:2])) < FIRST_UNKNOWN_SPARK:
        return problem("Spark", f"PySpark {found}", advice)
    return fine("Spark", f"PySpark {found}")


def packages_finding(found: Mapping[str, str | None]) -> Finding:
    """What tasks import is installed."""
    missing = [name for name, version in found.items() if version is None]
    if missing:
        return problem("packages", f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    return fine("packages", ", ".join(f"{name} {version}" for name, version in found.items()))


def extras_finding(found: Mapping[str, str | None]) -> Finding:
    """Which optional parts are installed."""
    there = [extra for extra, version in found.items() if version is not None]
    missing = [extra for extra, version in found.items() if version is None]
    words = f"installed: {', '.join(there) or 'none'}"
    if not missing:
        return fine("extras", words)
    return note(
        "extras", f"{words}; not installed: {', '.join(missing)}", f"if you need one: pip install 'resurge[{missing[0]}]'"
    )


def address_finding(name: str) -> Finding:
    """Executors on other machines find the driver by its host name."""
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        return note(
            "address",
            f"the host name {name} has no address: {error}",
            "for a cluster, set spark.driver.host to an address that executors reach; on one machine set SPARK_LOCAL_IP=127.0.0.1",
        )
    if address.startswith("127.") and "SPARK_LOCAL_IP" not in os.environ:
        return note(
            "address",
            f"the host name {name} is {address}, which other machines cannot reach",
            "for a cluster of several machines, set spark.driver.host; on one machine all is well",
        )
    return fine("address", f"{name} is {address}")


def port_finding() -> Finding:
    """Ports can be opened on loopback, and connections to them work."""
    try:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen(1)
            with socket.create_connection(server.getsockname(), TIMEOUT_S):
                return fine("ports", "a port on 127.0.0.1 can be opened and reached")
    except OSError as error:
        return problem(
            "ports", f"no port on 127.0.0.1 can be opened and reached: {error}", "allow loopback connections on this machine"
        )


def memory_finding() -> Finding:
    """There is memory for a driver and executors."""
    import psutil

    free, cores = psutil.virtual_memory().available, os.cpu_count() or 1
    words = f"{bytes_in_words(free)} of memory free, {cores} cores"
    if free < LEAST_MEMORY_BYTES:
        return note(
            "memory", words, "Spark on this machine wants about 4 GB: end what is not needed, or lower spark.driver.memory"
        )
    return fine("memory", words)


def space_finding(name: str, folder: Path) -> Finding:
    """A folder can be written and has room."""
    check = f"space, {name}"
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix="resurge-doctor-"):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        return problem(
            check, f"{folder} cannot be written: {error.strerror}", "set its permissions right, or TMPDIR to another folder"
        )
    words = f"{bytes_in_words(free)} free in {folder}"
    if free < LEAST_FREE_BYTES:
        return note(check, words, f"make room: state and shuffle files want {bytes_in_words(LEAST_FREE_BYTES)} or more")
    return fine(check, words)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
