"""What becomes of a user's request to a running job: accepted, refused, done or failed, in words."""

from enum import Enum

import msgspec


class Verdict(Enum):
    """How far a request is; only `ACCEPTED` is followed by another verdict."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    DONE = "done"
    FAILED = "failed"


class Answer(msgspec.Struct, frozen=True):
    """A verdict, what it means in one line, and how long the request took and paused its partitions so far."""

    verdict: Verdict
    text: str
    took_s: float = 0.0
    pause_s: float = 0.0

    @property
    def is_final(self) -> bool:
        """Whether nothing more comes."""
        return self.verdict is not Verdict.ACCEPTED
