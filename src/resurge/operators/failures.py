"""What is told when an operator fails: which operator, where, and in plain words why."""

import re

import polars as pl

from resurge.errors import JobError, ResurgeError

_TOO_LARGE = re.compile(r"from `\w+` to `i64` failed in column '(?:sum\()?(.*?)\)?' for")


def failed(operator: str, where: str, error: Exception) -> ResurgeError:
    """The error that a job ends with when an operator fails; `where` is the epoch and the like."""
    if isinstance(error, JobError):
        return JobError(f"{error} (operator {operator!r}, {where.removeprefix('in ')})")
    if isinstance(error, ResurgeError):
        return error
    return JobError(f"operator {operator!r} failed {where}: {_in_words(error)}")


def _in_words(error: Exception) -> str:
    too_large = _TOO_LARGE.search(str(error)) if isinstance(error, pl.exceptions.InvalidOperationError) else None
    if too_large is not None:
        return (
            f"a sum of column {too_large[1]!r} does not fit into a 64-bit integer; expected sums from -2**63 to 2**63 - 1: "
            "cast the column to pl.Float64 or pl.Decimal in a map before"
        )
    return f"{type(error).__name__}: {error}"
