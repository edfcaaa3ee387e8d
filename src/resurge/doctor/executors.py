"""The executors of a master: reachable, with the driver's versions, and with clocks that agree."""

import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from resurge.doctor.findings import Finding, fine, note, problem
from resurge.errors import ResurgeError
from resurge.runtime.worker.fitness import FIELDS, misfits
from resurge.telemetry.wording import seconds_in_words

PACKAGES = ("polars", "pyarrow", "numpy", "msgspec", "pyspark")
MOST_SKEW_S = 2.0
CONNECT_TIMEOUT_S = 5.0
TASKS = 8


def master_finding(master: str) -> Finding | None:
    """A standalone master can be reached; None for masters that have no address of their own."""
    if not master.startswith("spark://"):
        return None
    for part in master.removeprefix("spark://").split(","):
        where = urlsplit(f"//{part}")
        try:
            with socket.create_connection((where.hostname or "", where.port or 7077), CONNECT_TIMEOUT_S):
                return fine("master", f"{master} can be reached")
        except OSError as error:
            reason = error.strerror or str(error)
    return problem(
        "master", f"{master} cannot be reached: {reason}", "check host, port and firewall; the master's log names its URL"
    )


def executor_findings(master: str) -> Iterator[Finding]:
    """Start a session, run a small job on it, compare what executors report with this process."""
    reached = master_finding(master)
    if reached is not None:
        yield reached
        if reached.advice:
            return
    from resurge.runtime.embedded_cluster.runner import runner_on

    began_s = time.monotonic()
    try:
        spark = runner_on(master, "resurge doctor").spark
    except ResurgeError as error:
        yield problem("session", str(error), "look at Java and the master first")
        return
    try:
        yield fine("session", f"Spark {spark.version} on {master} started in {seconds_in_words(time.monotonic() - began_s)}")
        yield from _compared(spark)
    finally:
        spark.stop()


def _compared(spark: Any) -> Iterator[Finding]:
    sent_s = time.time()
    try:
        reports = spark.sparkContext.parallelize(range(TASKS), TASKS).mapPartitions(_make_report()).collect()
    except Exception as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        yield problem(
            "executors", f"a small job failed: {reason}", "see that executors have the driver's Python (PYSPARK_PYTHON)"
        )
        return
    answered_s = time.time()
    hosts = {report["host"]: report for report in reports}
    mine = next(iter(_make_report()(iter(()))))
    yield from versions_findings(mine, hosts)
    skew_s = max(max(sent_s - report["at_s"], report["at_s"] - answered_s, 0.0) for report in reports)
    if skew_s > MOST_SKEW_S:
        yield note("clocks of executors", f"one differs by {seconds_in_words(skew_s)}", "set the clocks with NTP")
    else:
        yield fine("clocks of executors", "agree with the driver's")


def versions_findings(mine: Mapping[str, Any], hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """One finding per host that differs, or one for all that agree.

    `fitness` is what a node is judged by when it joins a job; an executor without Resurge is sent the driver's code then.
    """
    differing = False
    for host, report in sorted(hosts.items()):
        fitness = report["fitness"]
        wrong = misfits(mine["fitness"], fitness) if fitness is not None else []
        wrong += [
            f"{name} is {report[name] or 'missing'}, expected {mine[name]}"
            for name in PACKAGES
            if report[name] != mine[name] and not (fitness is not None and name in FIELDS)
        ]
        if wrong:
            differing = True
            yield problem(
                f"versions on {host}",
                ", ".join(wrong),
                "install the driver's versions there, or ship a packed environment; an executor without Resurge is sent the driver's",
            )
        elif fitness is None:
            differing = True
            yield note(f"versions on {host}", "no Resurge", "nothing to do: a job sends the driver's")
    if not differing:
        own = mine["fitness"]
        words = [f"{label} {getattr(own, field)}" for field, label in FIELDS.items()]
        words += [f"{name} {mine[name]}" for name in PACKAGES if name not in FIELDS]
        yield fine("versions on executors", f"as here on {', '.join(sorted(hosts))}: {', '.join(words)}")


def _make_report() -> Any:
    """A function that travels by value: executors may not have Resurge."""
    packages = PACKAGES

    def report(rows: Any) -> Any:
        import importlib.metadata
        import socket
        import time

        def version(name: str) -> str | None:
            try:
                return importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                return None

        try:
            from resurge.runtime.worker.fitness import own_fitness
        except ImportError:
            fitness = None
        else:
            fitness = own_fitness()
        yield {name: version(name) for name in packages} | {
            "fitness": fitness,
            "host": socket.gethostname(),
            "at_s": time.time(),
        }

    return report
