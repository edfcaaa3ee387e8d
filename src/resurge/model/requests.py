"""What users ask of a running job, and what becomes of it: accepted, refused, done or failed, in words."""

from enum import Enum

import msgspec

from resurge.model.names import NodeId

PRECOPY, DIRECT, CPA, CPAL = "precopy", "direct", "cpa", "cpal"
WAYS = (PRECOPY, DIRECT, CPA, CPAL)
"""How state moves: shipped while the primary goes on and then the rest of it, or all at once while the partition pauses; or the
target begins with a copy or the checkpoint and takes the epochs since, while the partition pauses (cpa) or the primary goes on (cpal)."""
PAUSING = (DIRECT, CPA)
"""The ways in which partitions take no epochs until they have caught up on their new nodes."""


class Move(msgspec.Struct, frozen=True, tag=True):
    """Move key groups of an operator (all, if none is named) to a node."""

    request: str
    operator: str
    target: NodeId
    key_groups: list[int] = []
    how: str = PRECOPY


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Move everything away from a node, and put nothing there again."""

    request: str
    node: NodeId


class Balance(msgspec.Struct, frozen=True, tag=True):
    """Move few and cheap key groups so that load is even; or only say which."""

    request: str
    is_dry_run: bool = False


class Scale(msgspec.Struct, frozen=True, tag=True):
    """Have so many nodes, within the bounds that the job was started with."""

    request: str
    nodes: int


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


Ask = Move | Drain | Balance | Scale
"""What a user may ask for."""
