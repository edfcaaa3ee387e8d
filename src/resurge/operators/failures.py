"""What is told when an operator fails: which operator, where, and in plain words why."""

import re

import polars as pl

from resurge.errors import JobError, ResurgeError
from resurge.model.user_code import user_traceback

_TOO_LARGE = re.compile(r"to `i64` failed|decimal precision 38 can't fit|overflow in decimal addition")
_SUMMED = re.compile(r'col\("sum\((.*?)\)(?:__old)?"\)|col\("(.*?)"\)[^\n]*\.sum\(\)')


def failed(operator: str, where: str, error: Exception) -> ResurgeError:
    """The error that a job ends with when an operator fails; `where` is the epoch and the like."""
    if isinstance(error, JobError):
        return JobError(f"{error} (operator {operator!r}, {where.removeprefix('in ')}){user_traceback(error)}")
    if isinstance(error, ResurgeError):
        return error
    return JobError(f"operator {operator!r} failed {where}: {_in_words(error)}{user_traceback(error)}")


def _in_words(error: Exception) -> str:
    if isinstance(error, pl.exceptions.PolarsError) and _TOO_LARGE.search(str(error)):
        summed = _SUMMED.search(str(error))
        if summed is not None:
            return (
                f"a sum of column {summed[1] or summed[2]!r} does not fit; expected at most 64 bits, or 38 digits of a decimal: "
                "cast the column to pl.Float64 in a map before"
            )
    # Polars adds the query plan, which is ours and not the user's.
    told = str(error).strip().splitlines()[:1] if isinstance(error, pl.exceptions.PolarsError) else [str(error)]
    return f"{type(error).__name__}: {' '.join(told)}"
