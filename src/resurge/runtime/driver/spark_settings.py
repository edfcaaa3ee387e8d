"""Spark settings that Resurge relies on: set on every session that it opens, checked on every session that it is given."""

import re
from collections.abc import Callable

from resurge.errors import JobError

DURATION_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
LEAST_LOCALITY_WAIT_S = 30.0
LOCALITY_WAIT = "300s"

REQUIRED = {
    "spark.speculation": ("false", "a second copy of a task would run on a node that does not have its state"),
    "spark.dynamicAllocation.enabled": ("false", "Spark would remove idle executors together with the state that they hold"),
    "spark.stage.maxConsecutiveAttempts": ("1", "Resurge decides itself what runs again after a failure"),
    "spark.task.maxFailures": ("1", "Resurge decides itself what runs again after a failure"),
    "spark.excludeOnFailure.enabled": ("false", "Spark would keep tasks away from the node that has their state"),
    "spark.excludeOnFailure.application.enabled": ("false", "Spark would keep tasks away from the node that has their state"),
    "spark.excludeOnFailure.taskAndStage.enabled": ("false", "Spark would keep tasks away from the node that has their state"),
    "spark.python.worker.reuse": ("true", "the state in memory would be read again in every epoch"),
}
SPARK_DEFAULTS = {"spark.stage.maxConsecutiveAttempts": "4", "spark.task.maxFailures": "4", "spark.python.worker.reuse": "true"}
LOCALITY_SETTINGS = ("spark.locality.wait", "spark.locality.wait.process")


def is_in_process(master: str) -> bool:
    """True if driver and tasks share one JVM, so that there are no executors to lose or to pin tasks to.

    >>> is_in_process("local[2]"), is_in_process("local-cluster[2,1,1024]"), is_in_process("yarn")
    (True, False, False)
    """
    return master == "local" or master.startswith("local[")


def required_settings(master: str) -> dict[str, str]:
    """What every session on a cluster needs, whichever its manager is."""
    if is_in_process(master):
        return {}
    # At 0 a pinned task runs on whichever executor is free first. The loss of its executor ends the wait.
    return {name: value for name, (value, _) in REQUIRED.items()} | dict.fromkeys(LOCALITY_SETTINGS, LOCALITY_WAIT)


def refuse_unfit(master: str, setting: Callable[[str], str | None]) -> None:
    """Refuse a session on a cluster whose settings could lose state; the error names every setting that does not fit."""
    if is_in_process(master):
        return
    wrong: dict[str, tuple[str, str, str]] = {}
    for name, (wanted, why) in REQUIRED.items():
        found = setting(name) or SPARK_DEFAULTS.get(name, "false")
        if found.strip().lower() != wanted:
            wrong[name] = found, wanted, why
    wait = setting(LOCALITY_SETTINGS[1]) or setting(LOCALITY_SETTINGS[0]) or "3s"
    if seconds(wait) < LEAST_LOCALITY_WAIT_S:
        wrong[LOCALITY_SETTINGS[0]] = wait, LOCALITY_WAIT, "a task would not wait for the node that has its state"
    if wrong:
        listed = "; ".join(f"{name} is {found}, expected {wanted}: {why}" for name, (found, wanted, why) in wrong.items())
        options = " ".join(f'.config("{name}", "{wanted}")' for name, (_, wanted, _) in wrong.items())
        raise JobError(
            f"the Spark session on {master} does not fit: {listed}. Stop it and let Resurge open its own, or open it with {options}"
        )


def seconds(duration: str) -> float:
    """A duration as Spark writes it; a number without a unit is in milliseconds.

    >>> seconds("30s"), seconds("1500"), seconds("2min")
    (30.0, 1.5, 120.0)
    """
    found = re.fullmatch(r"(\d+)\s*(us|ms|s|m|min|h|d)?", duration.strip().lower())
    if found is None:
        raise JobError(f"{duration!r} is not a duration of Spark's, such as 30s")
    return int(found[1]) * DURATION_S[found[2] or "ms"]
