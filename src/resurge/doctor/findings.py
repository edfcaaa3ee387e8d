"""What a check found: fine, worth a look, or in the way of a job; with advice."""

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """How a check ended."""

    FINE = "fine"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, what was found, and what to do where something is to be done."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""


def fine(check: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding(check, Verdict.FINE, found)


def note(check: str, found: str, advice: str) -> Finding:
    """A job runs, but something could be better."""
    return Finding(check, Verdict.NOTE, found, advice)


def problem(check: str, found: str, advice: str) -> Finding:
    """A job would not run, or not safely."""
    return Finding(check, Verdict.PROBLEM, found, advice)
