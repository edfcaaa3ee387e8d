"""Failures that tasks report, as the errors they were."""

from typing import NoReturn

from resurge import errors
from resurge.errors import JobError, ResurgeError


def raise_failure(kind: str, message: str) -> NoReturn:
    """Raise what a task reported, as the class it had there."""
    found = getattr(errors, kind, JobError)
    if not (isinstance(found, type) and issubclass(found, ResurgeError)):
        found = JobError
    raise found(message)
