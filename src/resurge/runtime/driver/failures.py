"""Failures that tasks report, as the errors they were."""

from collections.abc import Iterable
from typing import NoReturn

from resurge import errors
from resurge.errors import EngineError, JobError, ResurgeError
from resurge.runtime.worker.messages import SlotReport
from resurge.runtime.worker.tasks import MISPLACED


def raise_failures(reports: Iterable[SlotReport]) -> None:
    """Raise the first failure that the tasks of a job reported, if there is one."""
    for report in reports:
        if report.failure is not None:
            raise_failure(*report.failure)


def raise_failure(kind: str, message: str) -> NoReturn:
    """Raise what a task reported, as the class it had there; a task that Spark ran elsewhere is Spark's failure."""
    if kind == MISPLACED:
        raise EngineError(
            f"Spark ran a task on another executor than it was sent to: {message}; if this happens again and again, leave cores "
            "of each executor to Resurge alone and spark.locality.wait at 300s"
        )
    found = getattr(errors, kind, JobError)
    if not (isinstance(found, type) and issubclass(found, ResurgeError)):
        found = JobError
    raise found(message)
